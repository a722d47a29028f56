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

-- Out of the sets of those that may be run twice.
local function forget_hedge(id)
  for _, set in ipairs({ 'stragglers', 'hedges', 'twice' }) do
    call('ZREM', P .. set, id)
  end
end

-- Its run, if it has one, is over.
local function off_run(id, r)
  if r.owner then
    call('SREM', P .. 'run:' .. r.owner, id)
  end
  if r.began then
    forget_hedge(id)
  end
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
  else
    off_run(id, r)
  end
end
