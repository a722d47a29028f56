-- Where jobs wait to be claimed: `ready`, or `suspects` for those that are to be run alone.

local function put_waiting(id, r)
  local set = P .. 'ready'
  if r.state == 'suspect' then
    set, suspected = P .. 'suspects', suspected + 1
    call('HSET', P .. 'fleet', 'suspects', '1') -- so that others need not look for none
  end
  call('ZADD', set, r.fifo and r.born or (r.deadline - r.estimate), member(id, r.seq))
end

-- From now on it may be claimed: by anybody, or as a suspect. Returns its state.
local function let_wait(id, r)
  r.state = r.alone and 'suspect' or 'ready'
  call('HSET', P .. 'job:' .. id, 'state', r.state, 'deadline', str(r.deadline))
  put_waiting(id, r)
  return r.state
end

local function off_queue(id, r)
  if r.state == 'ready' then
    call('ZREM', P .. 'ready', member(id, r.seq))
  elseif r.state == 'suspect' then
    call('ZREM', P .. 'suspects', member(id, r.seq))
  elseif r.state == 'later' then
    call('ZREM', P .. 'later', id)
    call('ZREM', P .. 'delayed', id)
  elseif r.state == 'strange' then
    call('ZREM', P .. 'strange', id)
  elseif r.owner then
    call('SREM', P .. 'run:' .. r.owner, id)
  end
end
