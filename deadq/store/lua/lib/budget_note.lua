-- The retry budget: what first attempts have earned and retries have spent, in slots of half a second.
-- Fields of `budget`: 'rule' "<ratio> <floor a second> <window ms>"; 'f<slot>' first attempts,
-- 's<slot>' tokens spent, 'h<slot>' those of them that were hedges; 'o<holder>' tokens lent out, "<tokens> <until ms> <number of the call>".

local BUDGET, SLOT, LONGEST = P .. 'budget', 500, 61000 -- ms

-- Add to one slot; whoever opens it drops those that no window reaches any more.
local function budget_note(kind, n, at)
  local slot = math.floor(at / SLOT)
  local got = redis.pcall('HINCRBY', BUDGET, kind .. str(slot), n)
  if got == n then
    for _, f in ipairs(call('HKEYS', BUDGET)) do
      local old = num(string.match(f, '^[fsh](%d+)$'))
      if old and (old + 1) * SLOT < NOW - LONGEST then
        call('HDEL', BUDGET, f)
      end
    end
  elseif type(got) == 'table' and got.err then
    if string.find(tostring(got.err), 'OOM', 1, true) then
      error(got.err)
    end
    call('DEL', BUDGET) -- not what a release of deadq wrote: start over
  end
end
