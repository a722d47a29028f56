-- Children that are gone, and what they held.

-- Units that the dead child has begun are in doubt from now on: nobody is left to record them.
-- Returns whether one of them had outlived its limit.
local function doubt_units(id, r)
  local over = false
  for _, f in ipairs(r.units) do
    local fence, since, limit, rest = string.match(r[f], '^begun (%d+) (%d+) (%d+) (.*)$')
    if fence == r.fence and fence then
      over = over or (num(since) or NOW) + (num(limit) or 0) <= NOW
      r[f] = 'begun ' .. fence .. ' ' .. since .. ' 0 ' .. rest
      call('HSET', P .. 'job:' .. id, f, r[f])
    end
  end
  return over
end

-- A child that had the job is dead, or seems so; returns how many that makes.
local function count_crash(id, r, suspect)
  local crashes = (num(r.crashes) or 0) + 1
  count('reclaimed')
  call('HSET', P .. 'job:' .. id, 'crashes', str(crashes))
  if suspect or crashes > 1 then
    r.alone = '1'
    call('HSET', P .. 'job:' .. id, 'alone', '1')
  end
  return crashes
end

-- Its child has died, perhaps by this very job: again, alone as a suspect, but not for ever. A lapse
-- counts too: of a child without a supervisor, which its job has killed, nothing else is seen.
local function take_crashed(id, r, suspect, retention)
  local crashes = count_crash(id, r, suspect)
  if unwanted(r) or (num(call('ZSCORE', P .. 'due', id)) or 0) <= NOW then
    return take_from(id, r, retention)
  elseif r.once or crashes >= POISON then
    return fail(id, r, 'crashed', retention, str(crashes))
  end
  return give_back(id, r)
end

-- What a child held that is gone. how: 'leaves' or 'killed' on purpose, 'died', or 'lapsed': then
-- nobody knows whether it is dead, and its open units stay open until their limit. A job whose unit
-- had outlived its limit is charged with the killing.
local function reclaim(child, retention, how)
  local ids, back = redis.pcall('SMEMBERS', P .. 'run:' .. child), 0
  for _, id in ipairs(ids.err and {} or ids) do
    local r = load(id)
    if r and r.state == 'running' and (r.owner == child or r.owner2 == child) then
      local over = (how == 'killed' or how == 'died') and doubt_units(id, r)
      local state
      if r.owner2 then -- another one is at it: the death counts all the same
        if how == 'died' or how == 'lapsed' then
          count_crash(id, r, how == 'died')
        end
        drop_run(id, r, r.owner == child and 1 or 2)
      elseif how == 'died' or how == 'lapsed' or over then
        state = take_crashed(id, r, how ~= 'lapsed', retention)
      else
        state = take_from(id, r, retention)
      end
      back = back + (state == 'ready' and 1 or 0)
    end
  end
  call('DEL', P .. 'run:' .. child, P .. 'worker:' .. child, P .. 'ctl:' .. child)
  call('ZREM', P .. 'workers', child)
  call('ZREM', P .. 'parked', child)
  -- Whether or not it was this one that waited for the next straggler.
  wake(math.max(back, math.min(1, call('ZCARD', P .. 'hedges'))))
end

-- Whoever comes by takes from the children whose lease has ended.
local function sweep_lapsed(retention)
  local gone = call('ZRANGEBYSCORE', P .. 'workers', '-inf', str(NOW), 'LIMIT', 0, 16)
  for _, child in ipairs(gone) do
    reclaim(child, retention, 'lapsed')
  end
  if #gone > 0 then
    refresh_fleet()
  end
end
