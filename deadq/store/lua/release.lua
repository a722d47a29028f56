--! use: base passing tell wake record waiting ending back fleet twice lapse by_name
-- release: retire a child's id; the jobs that it still holds go back to the queue.
-- ARGV 1 now   2 child   3 retention ms
--      4 'leaves', or 'killed' on purpose: uncharged, but for a job with a unit beyond its limit.
--        'died': it counts against its jobs, which are suspects from now on. Of the last two the
--        open units are in doubt at once.
-- reply: now, how many suspects wait

reclaim(ARGV[2], tonumber(ARGV[3]), ARGV[4])
refresh_fleet()
local suspects = call('ZCARD', P .. 'suspects')
if suspects > 0 then
  wake_for_suspects() -- it may have been woken for one of them itself
end
return { NOW, suspects }
