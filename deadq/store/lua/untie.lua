--! use: base passing record waiting ending
-- untie: a job of another queue is about to start; its twin in this one is not to run too. What waits
-- here is cancelled, and its waiters see that its twin was preferred.
--
-- ARGV 1 now   2 id here   3 what its record must say of its twin: else it is somebody else's job
--      4 'first' or 'second': which of the two asks   5 retention ms
-- reply: now, 'start', or 'yield': the twin has run, or runs and is the first of the two

local id = ARGV[2]
local r, why = load(id)
if not r or why == 'absent' or r.twin ~= ARGV[3] then
  return { NOW, 'start' }
elseif r.state == 'done' or r.state == 'running' and ARGV[4] == 'second' and not unwanted(r) then
  return { NOW, 'yield' }
elseif r.state == 'ready' or r.state == 'suspect' or r.state == 'later' or r.state == 'strange' then
  count('tied_away')
  settle(id, r, 'cancelled', keep_of(r, tonumber(ARGV[5])), 'tied')
end
return { NOW, 'start' }
