--! use: base passing tell record waiting ending back cancel
-- cancel: a job that waits never starts; one that runs is interrupted by its owner.
-- ARGV 1 now   2 id   3 retention ms
-- reply: now, 'cancelled', 'running' (too late to prevent the start), its final state, or 'gone'

local id = ARGV[2]
local r, why = load(id)
if not r or why == 'absent' then
  return { NOW, 'gone' }
end
return { NOW, cancel(id, r, tonumber(ARGV[3])) }
