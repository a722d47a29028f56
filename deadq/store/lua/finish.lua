--! use: base passing tell wake record waiting ending service twice finishing
-- finish: settle what a child has done with its jobs; each only under the fence it was claimed with.
--
-- ARGV 1 now   2 child   3 retention ms
-- then seven for each job: id, fence, outcome, microseconds it held its slot, cut short ('1' or ''),
-- delay ms (retry), result or error
--   outcome: done | failed | retry | release | cut | cancelled | unrun | yielded
-- reply: now, then for each job what became of it: its new state, 'stale', or 'gone'

return finish(ARGV[2], tonumber(ARGV[3]), 4, #ARGV, { NOW })
