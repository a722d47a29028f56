-- Part of claim: what to do with one of those that wait.

-- The newest record version that a living worker knows for each task.
local function fleet_knows()
  local known = {}
  for version, task in string.gmatch(call('HGET', P .. 'fleet', 'known') or '', '(%d+) ([^\n]+)') do
    known[task] = tonumber(version)
  end
  return known
end

-- The smaller of the estimate it was admitted with and today's.
local function expected(r)
  local e = estimates[r.task]
  if not e then
    local _, p95 = estimate_of(r.task)
    e = p95 or 0
    estimates[r.task] = e
  end
  return math.min(e, r.estimate)
end

local KNOWN = { ready = 1, suspect = 1, later = 1, running = 1, strange = 1, done = 1, failed = 1,
  exhausted = 1, exceeded = 1, crashed = 1, expired = 1, cancelled = 1, malformed = 1 }

-- What to do with one member of `ready` or `suspects`: 'take', 'skip', 'hopeless', or gone already.
local function inspect(set, m)
  local id = id_of(m)
  local r, why = load(id)
  if why == 'absent' then
    call('ZREM', set, m)
    call('ZREM', P .. 'due', id)
  elseif not r or not r.task or not string.match(id, '^%x+$') or not KNOWN[r.state] then
    --! use: back
    set_aside(id, m, why or 'not a job', retention)
  elseif r.state ~= (set == READY and 'ready' or 'suspect') or member(id, r.seq) ~= m then -- a stray: the job itself is sound
    call('ZREM', set, m)
    if r.state == 'ready' or r.state == 'suspect' then
      put_waiting(id, r)
    end
  elseif r.deadline <= NOW then
    expire(id, r, 'claim', retention)
  elseif not mine[r.task] or r.version > version then
    fleet = fleet or fleet_knows()
    if (fleet[r.task] or 0) >= r.version then
      return 'skip', id, r
    end
    call('ZREM', set, m)
    call('ZADD', P .. 'strange', str(r.deadline), id)
    call('HSET', P .. 'job:' .. id, 'state', 'strange')
    count('strange')
  elseif expected(r) > r.deadline - NOW then
    return 'hopeless', id, r
  else
    return 'take', id, r
  end
end
