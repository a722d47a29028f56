-- Part of finish: what becomes of a job, by the outcome that its worker reports. Each takes the id,
-- the record, the latest attached deadline, the delay of a retry (ms), and the result or error.

local function back_to_queue(id, r)
  local state = give_back(id, r)
  requeued = requeued + (state == 'ready' and 1 or 0)
  return state
end

local settlers = {}

function settlers.late(id, r)
  if unwanted(r) then
    return settlers.cancelled(id, r, 0)
  end
  return fail(id, r, 'exceeded', retention)
end

settlers.done = settlers.late -- one in time is settled where these are called

function settlers.failed(id, r, _, _, blob)
  if (num(r.retries) or 0) > (num(r.fails) or 0) then
    count('retry_denied:permanent')
  end
  return fail(id, r, 'failed', retention, blob)
end

function settlers.retry(id, r, due, delay, blob)
  local fails = (num(r.fails) or 0) + 1
  if unwanted(r) then
    return settlers.cancelled(id, r, due)
  elseif r.again then
    return back_to_queue(id, r)
  elseif fails > (num(r.retries) or 0) then
    count('retry_denied:tries')
    return fail(id, r, 'exhausted', retention, blob)
  end
  local _, p95 = estimate_of(r.task)
  if NOW + delay + (p95 or 0) >= due then
    count('retry_denied:deadline')
    return fail(id, r, 'exhausted', retention, blob)
  end
  --! use: budget
  if not budget_take() then
    count('retry_denied:budget')
    return fail(id, r, 'exhausted', retention, blob)
  end
  count('retried')
  call('HSET', P .. 'job:' .. id, 'fails', str(fails))
  if delay < 1 then
    return back_to_queue(id, r)
  end
  off_run(id, r)
  call('HDEL', P .. 'job:' .. id, 'owner', 'claim', 'probe', 'began', 'left')
  call('HSET', P .. 'job:' .. id, 'state', 'later', 'deadline', str(due))
  call('ZADD', P .. 'later', str(NOW + delay), id)
  wake_before(NOW + delay)
  return 'later'
end

function settlers.release(id, r, due)
  if unwanted(r) then
    return settlers.cancelled(id, r, due)
  elseif due <= NOW then
    return settlers.late(id, r)
  end
  return back_to_queue(id, r)
end

function settlers.cut(id, r, due)
  if due > r.deadline then -- a later caller has attached: again, uncharged, under its deadline
    return settlers.release(id, r, due)
  end
  return settlers.late(id, r)
end

function settlers.cancelled(id, r, due)
  if r.again and due > NOW then -- somebody asked for it anew while it was being stopped
    return back_to_queue(id, r)
  end
  count('finished:cancelled')
  settle(id, r, 'cancelled', keep_of(r, retention))
  return 'cancelled'
end
