--! use: base passing tell wake record waiting ending service twice finishing claiming
-- exchange: finish, and then claim: what a child says between two jobs, in one call.
--
-- ARGV 1 now   2 child   3 retention ms   4 jobs settled, then for each of these as for finish, then
--      as for claim: claim number, jobs wanted, record version, parking, tasks known
-- reply: now, what became of each job settled, and the reply of claim

local child, retention, last = ARGV[2], tonumber(ARGV[3]), 4 + 7 * tonumber(ARGV[4])
local words = finish(child, retention, 5, last, {})
return { NOW, words, claim(child, retention, last + 1) }
