-- Jobs that fail, go back to the queue, or are set aside.

-- A final state without a result: the payload stays for a replay, as long as the record does.
local function fail(id, r, state, retention, blob)
  local dead = P .. 'dead'
  count('finished:' .. state)
  call('ZADD', dead, NOW, id)
  settle(id, r, state, retention, blob, true)
  call('ZREMRANGEBYSCORE', dead, '-inf', NOW - retention)
  local over = call('ZCARD', dead) - MOST_DEAD
  for _, old in ipairs(over > 0 and call('ZRANGE', dead, 0, over - 1) or {}) do
    call('ZREM', dead, old)
    local left = load(old)
    if left and left.finished then
      forget_payload(old, left)
    end
  end
  return state
end

-- Back to the queue, uncharged, under the latest attached deadline. Returns its state.
local function give_back(id, r)
  local J = P .. 'job:' .. id
  off_run(id, r)
  r.deadline = num(call('ZSCORE', P .. 'due', id)) or r.deadline
  call('HDEL', J, 'owner', 'claim', 'probe', 'cancel', 'again', 'began', 'left')
  return let_wait(id, r)
end

-- Not a record that anybody could run: out of the queue, kept for a look, never run.
local function set_aside(id, m, why, retention)
  call('ZREM', P .. 'due', id)
  call('ZREM', P .. 'ready', m)
  call('ZREM', P .. 'suspects', m)
  call('ZREM', P .. 'later', id)
  call('ZREM', P .. 'delayed', id)
  call('ZREM', P .. 'strange', id)
  forget_hedge(id)
  count('malformed')
  local J = P .. 'job:' .. id
  if redis.pcall('HSET', J, 'state', 'malformed', 'why', why) ~= nil then
    call('PEXPIRE', J, str(retention))
    call('PEXPIRE', P .. 'data:' .. id, str(retention))
  end
end

-- What becomes of a job whose child does not run it (any more). Returns its state.
local function take_from(id, r, retention)
  if unwanted(r) then
    count('finished:cancelled')
    settle(id, r, 'cancelled', keep_of(r, retention))
    return 'cancelled'
  elseif (num(call('ZSCORE', P .. 'due', id)) or 0) <= NOW then
    return fail(id, r, 'exceeded', retention)
  end
  return give_back(id, r)
end
