-- Part of claim: from when on a run of a hedged task counts as a straggler, by the p95 of its task.

-- Instants are rounded up, so that a worker who waits for them wakes seldom: to these parts of the
-- p95, and to this many ms at least.
local PARTS, GRAIN = 8, 5

-- Without any sample nobody knows what is long.
local function may_straggle(id, r)
  local p50, p95 = measured(r.task)
  if not p95 then
    return
  end
  local grain = math.max(GRAIN, math.floor(p95 / PARTS))
  local at = math.ceil((NOW + p95) / grain) * grain
  call('HSET', P .. 'job:' .. id, 'began', str(NOW))
  call('ZADD', P .. 'stragglers', str(at), id)
  if at + p50 < r.deadline then
    call('ZADD', P .. 'hedges', str(at), id)
  end
end
