-- Part of claim: a slot that nothing else fills may start a straggler a second time (hedge).

--! use: budget by_name
-- Where more than a tenth of them is late, and more than two, it is not the single run that is slow.
local late = call('ZCOUNT', P .. 'stragglers', '-inf', str(NOW))
local all_slow = late > 2 and late > call('ZCARD', P .. 'stragglers') / 10
local handed_on = false

-- A child that can start it, where this one cannot.
local function hand_on(r)
  visit_parked(function(other)
    if other[1] ~= r.owner and knows(other, r.task, r.version) then
      wake_up(other)
      handed_on = true
      return true
    end
  end)
end

for _, id in ipairs(call('ZRANGEBYSCORE', HEDGES, '-inf', str(NOW), 'LIMIT', 0, 16)) do
  if #taken + #hedged >= want then
    break
  end
  local r = load(id)
  local began, p50 = r and r.state == 'running' and num(r.began), r and r.task and measured(r.task)
  if not began then
    forget_hedge(id)
  elseif not p50 or r.owner2 or r.cancel or r.alone or r.crashes or r.deadline - NOW <= p50 then
    call('ZREM', HEDGES, id) -- never in this attempt
  elseif r.owner == child or not mine[r.task] or r.version > version then
    if not handed_on then
      hand_on(r)
    end
  else
    local denied = all_slow and 'slow' or hedge_denied()
    if denied then -- looked at again when it has run for twice as long
      count('hedge_denied:' .. denied)
      call('ZADD', HEDGES, str(NOW + math.max(1, NOW - began)), id)
    else
      call('ZREM', HEDGES, id)
      hedged[#hedged + 1] = { id, r }
    end
  end
end
