-- Housekeeping in bounded steps: what has expired leaves, what has fallen due gets ready.

-- Runs past their deadline stay in `due` until their owner settles them, so they are stepped over.
local function sweep_expired(most, retention)
  local due = P .. 'due'
  local first = call('ZRANGEBYSCORE', due, '-inf', str(NOW), 'LIMIT', 0, most)
  if #first == 0 then
    return 0
  end
  if #first == most then
    local waiting = call('ZCARD', P .. 'ready') + call('ZCARD', P .. 'suspects')
    waiting = waiting + call('ZCARD', P .. 'later') + call('ZCARD', P .. 'strange')
    local running = math.max(0, call('ZCARD', due) - waiting)
    first = call('ZRANGEBYSCORE', due, '-inf', str(NOW), 'LIMIT', 0, most + running)
  end
  local swept = 0
  for _, id in ipairs(first) do
    local r, why = load(id)
    if not r then
      set_aside(id, id, why, retention)
    elseif why == 'absent' then
      call('ZREM', due, id)
      call('ZREM', P .. 'later', id)
      call('ZREM', P .. 'delayed', id)
      call('ZREM', P .. 'strange', id)
      forget_hedge(id)
    elseif r.state == 'ready' or r.state == 'suspect' or r.state == 'later' or r.state == 'strange' then
      expire(id, r, 'queue', retention)
      swept = swept + 1
    elseif r.state ~= 'running' then
      call('ZREM', due, id)
    end
  end
  return swept
end

local function promote_due(most, retention)
  local ids = call('ZRANGEBYSCORE', P .. 'later', '-inf', str(NOW), 'LIMIT', 0, most)
  for _, id in ipairs(ids) do
    call('ZREM', P .. 'later', id)
    call('ZREM', P .. 'delayed', id)
    local r, why = load(id)
    if not r then
      set_aside(id, id, why, retention)
    elseif r.state == 'later' then
      let_wait(id, r)
    end
  end
  return #ids
end
