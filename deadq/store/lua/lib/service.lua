-- Service times: a decaying log-bucket histogram for each task in `service`.
-- `h:<task>` holds bucket:weight pairs; `s:<task>` the digest "p50 p95 p99 at" (ms); `all` the
-- decaying sums over the queue "n sum squares at", from which mean and sd follow.

-- What is left of an estimate of v ms that nobody has confirmed since `at`.
local function faded(v, at)
  if v <= 0 or NOW <= at then
    return v
  end
  return v * 0.5 ^ ((NOW - at) / math.max(1000, 2 * v))
end

-- p50, p95 and p99 of one task, ms, as they were measured at the instant that follows them; nil
-- without any sample.
local function measured(task)
  local a, b, c, at = string.match(call('HGET', P .. 'service', 's:' .. task) or '', '^(%S+) (%S+) (%S+) (%S+)')
  a, b, c, at = num(a), num(b), num(c), num(at)
  if a and b and c and at then
    return a, b, c, at
  end
end

-- The same, faded.
local function estimate_of(task)
  local a, b, c, at = measured(task)
  if a then
    return faded(a, at), faded(b, at), faded(c, at)
  end
end

-- Whether an idle slot may try a job that by the estimate cannot make it: one for each slot and
-- span. Without this a queue could lock itself out after a slow spell.
local function may_probe(id, slots, span)
  local probes = P .. 'probes'
  call('ZREMRANGEBYSCORE', probes, '-inf', NOW)
  if call('ZCARD', probes) >= slots then
    return false
  end
  call('ZADD', probes, NOW + span, id)
  return true
end

-- mean and sd over the queue, ms, as they were measured, and the instant; 0 without samples.
local function queue_measured()
  local n, sum, squares, at = string.match(call('HGET', P .. 'service', 'all') or '', '^(%S+) (%S+) (%S+) (%S+)')
  n, sum, squares, at = num(n), num(sum), num(squares), num(at)
  if not (n and sum and squares and at) or n <= 0 then
    return 0, 0, NOW
  end
  local mean = sum / n
  return mean, math.sqrt(math.max(0, squares / n - mean * mean)), at
end

-- The same, faded.
local function queue_service()
  local mean, sd, at = queue_measured()
  local left = mean > 0 and faded(mean, at) / mean or 1
  return mean * left, sd * left
end
