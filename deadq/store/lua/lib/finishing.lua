-- Part of finish and exchange: the settling itself, seven arguments a job from ARGV[first] to
-- ARGV[last]. What became of each goes into `reply`.

local function finish(child, retention, first, last, reply)
  local samples, requeued = {}, 0
  local done = {} -- leave their sets together, at the end

  -- All ends but a result in time are rare: what they need is made only then.
  local function rare_ends()
    --! use: back settlers settlers_unrun
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

  -- It has succeeded: if another run was at it, that one is to stop, and lasted so long at least.
  local function outrun(id, r, which)
    if r.owner2 then
      local other, fence, began = r.owner2, r.fence2, r.began2
      if which == 2 then
        other, fence, began, r.fence = r.owner, r.fence, r.began, r.fence2
        count('hedge_won')
      end
      call('SREM', P .. 'run:' .. other, id)
      tell(other, 'outrun ' .. id .. ' ' .. fence)
      sample(id, r, (NOW - (num(began) or NOW)) * 1000, true)
    end
    forget_hedge(id)
  end

  for i = first, last, 7 do
    local id, fence, outcome = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local r, why = load(id)
    local answer
    if not r or why == 'absent' then
      call('SREM', P .. 'run:' .. child, id)
      answer = 'gone'
    elseif r.fence ~= fence and r.fence2 ~= fence then
      answer = r.left == fence and r.state or 'stale'
    elseif r.state ~= 'running' then
      answer = r.state -- the same call once more
    elseif not run_of(r, child, fence) then
      answer = 'stale'
    else
      if outcome ~= 'release' and outcome ~= 'unrun' and outcome ~= 'yielded' then
        sample(id, r, num(ARGV[i + 3]) or 0, ARGV[i + 4] == '1')
      end
      local due = num(call('ZSCORE', P .. 'due', id)) or r.deadline
      if outcome == 'done' and due > NOW then
        if r.began then
          outrun(id, r, run_of(r, child, fence))
        end
        done[#done + 1] = id
        write_end(id, r, 'done', retention, ARGV[i + 6])
        answer = 'done'
      elseif r.owner2 then -- the other run may still succeed
        drop_run(id, r, run_of(r, child, fence))
        answer = 'running'
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
