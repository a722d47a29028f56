--! use: base passing tell wake record waiting ending service claiming
-- claim: expiry first, then hand out the jobs with the earliest latest start, each under a new fence.
-- A child of one slot looks at the suspects before all others; a slot that nothing else fills may
-- start a straggler of a hedged task a second time. A repeat under the same claim number
-- gets the same jobs again.
--
-- ARGV 1 now   2 child   3 retention ms   4 claim number   5 jobs wanted   6 newest record version known
--      7 '1': park when nothing is left ('2': and send word)   8.. tasks known
-- reply: now and 'unknown' when the child must register anew; else
--   now, park until ms (0: do not park), '1' when expired ones are left to sweep, then for each
--   job: id, key, task, deadline ms, attempt, fence, fails, payload, retries, marks, twin

return claim(ARGV[2], tonumber(ARGV[3]), 4)
