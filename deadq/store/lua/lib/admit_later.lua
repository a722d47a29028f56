-- Part of admit: a job that is put off has to fit between its instant and its deadline.

-- The estimate; or 'full'; or nil and a hint in ms.
local function fit_later(task, deadline, not_before)
  if not_before >= deadline then
    return nil
  elseif call('ZCOUNT', DELAYED, '(' .. str(NOW), '+inf') >= math.max(1, math.floor(capacity / 4)) then
    return 'full'
  elseif not feasible or slots == 0 then
    return 0
  end
  --! use: service
  local p50, p95 = estimate_of(task)
  if p50 and p50 > deadline - not_before then
    return nil, p50
  end
  return math.min(math.ceil(p95 or 0), deadline - not_before)
end
