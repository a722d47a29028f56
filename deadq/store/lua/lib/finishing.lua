-- Part of finish and exchange: the settling itself, seven arguments a job from ARGV[first] to
-- ARGV[last]. What became of each goes into `reply`.

local function finish(child, retention, first, last, reply)
  local samples, requeued = {}, 0
  local done = {} -- leave their sets together, at the end

  -- All ends but a result in time are rare: what they need is made only then.
  local function rare_ends()
    --! use: back settlers
    return settlers
  end
  local ends

  local function sample(id, r, us, cut)
    local quick = r.probe == '1' and not cut and (estimate_of(r.task) or 0) > us / 500
    if quick then
      call('ZREM', P .. 'probes', id)
    end
    samples[r.task] = samples[r.task] or {}
    table.insert(samples[r.task], { us, cut, quick })
  end

  for i = first, last, 7 do
    local id, fence, outcome = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local r, why = load(id)
    local answer
    if not r or why == 'absent' then
      call('SREM', P .. 'run:' .. child, id)
      answer = 'gone'
    elseif r.fence ~= fence then
      answer = 'stale'
    elseif r.state ~= 'running' then
      answer = r.state -- the same call once more
    elseif r.owner ~= child then
      answer = 'stale'
    else
      if outcome ~= 'release' and outcome ~= 'unrun' then
        sample(id, r, num(ARGV[i + 3]) or 0, ARGV[i + 4] == '1')
      end
      local due = num(call('ZSCORE', P .. 'due', id)) or r.deadline
      if outcome == 'done' and due > NOW then
        done[#done + 1] = id
        write_end(id, r, 'done', retention, ARGV[i + 6])
        answer = 'done'
      else
        ends = ends or rare_ends()
        answer = ends[outcome](id, r, due, num(ARGV[i + 5]) or 0, ARGV[i + 6])
      end
    end
    if answer == 'stale' then
      count('stale')
    end
    reply[#reply + 1] = answer
  end
  if #done > 0 then
    call('ZREM', P .. 'due', unpack(done))
    call('SREM', P .. 'run:' .. child, unpack(done))
    count('finished:done', #done)
  end
  --! use: take_in
  for task, list in pairs(samples) do
    take_in(task, list)
  end
  if suspected > 0 then
    --! use: by_name
    wake_for_suspects() -- by name first: whom it wakes can use no token
  end
  if requeued > 0 then
    wake(requeued)
  end
  return reply
end
