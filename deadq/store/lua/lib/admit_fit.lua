-- Part of admit: whether a job can be finished in time, by what has been measured.

-- Whether a job at rank `ahead` would push one behind it past its latest start, at `step` ms for
-- each job in front; looked up at up to eight ranks. What has no hope either way does not count.
local function pushes_out(ahead, ready, step)
  local behind = ready - ahead
  local looks = math.min(8, behind)
  for i = 1, looks do
    local k = ahead + math.floor((behind - 1) * (looks > 1 and (i - 1) / (looks - 1) or 1))
    local score = tonumber(call('ZRANGE', READY, k, k, 'WITHSCORES')[2]) - NOW
    if score < (k + 2) * step and score >= (k + 1) * step / 2 then
      return true
    end
  end
  return false
end

-- The estimate to admit with, and whether as a probe; or nil and a hint in ms.
local function fit(id, task, deadline, crit)
  --! use: service
  flush()
  local p50, p95 = estimate_of(task)
  if not p50 then
    return 0, false
  end
  local left = deadline - NOW
  local ready = call('ZCARD', READY)
  local running = call('ZCARD', DUE) - ready - call('ZCARD', LATER) - call('ZCARD', P .. 'strange')
  running = running + call('ZCARD', P .. 'twice')
  if fleet[4] then -- there may be some
    running = running - call('ZCARD', P .. 'suspects')
  end
  if slots - running - ready > 0 then
    if p50 <= left then
      return math.min(math.ceil(p50), left), false
    end
    if may_probe(id, slots, math.min(p50, left)) then
      return 0, true
    end
    return nil, p50
  end
  if not mean then
    mean, sd = queue_service()
  end
  local ahead = fifo and ready or call('ZCOUNT', READY, '-inf', deadline - math.ceil(p95))
  local wait = (ahead + 1) * mean / slots + 2 * sd * math.sqrt(ahead + 1) / slots
  if wait <= WAIT_SHARE[crit] * (left - p95) and not pushes_out(ahead, ready, mean / slots) then
    return math.ceil(p95), false
  end
  return nil, math.max(mean, wait + p95 - left)
end
