--! use: base passing record waiting ending back service
-- begin: open a unit of a running job, unless its result is on record already.
--
-- ARGV 1 now   2 child   3 id   4 fence   5 unit   6 fingerprint of its arguments (hex)
--      7 needs ms   8 limit ms   9 'rerun' or 'fail' when in doubt   10 retention ms
-- reply: now, word, and for
--   run         open: it may run now
--   done        its result: it has run before
--   open        until when (ms): another attempt is in it
--   doubt       another attempt began it and left no end
--   mismatch    the same name with other arguments
--   many        there are as many in its record as it may hold
--   short       too little time is left
--   cancelled   somebody cancelled the job
--   lost        the job is not this child's any more
--
-- A unit's field is "<begun|done|raised> <fence> <begun ms> <limit ms> <fingerprint> <result>".

local child, id, fence, unit, print = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local needs, limit = tonumber(ARGV[7]), tonumber(ARGV[8])
local r = load(id)
if not r or r.state ~= 'running' or r.owner ~= child or r.fence ~= fence then
  return { NOW, 'lost' }
end
local status, by, begun, its_limit, its_print, result =
  string.match(r['u:' .. unit] or '', '^(%l+) (%d+) (%d+) (%d+) (%x+) (.*)$')
begun, its_limit = num(begun), num(its_limit)
if not begun or not its_limit then
  status = nil -- none, or not one that a release of deadq wrote
end
if status and its_print ~= print then
  return { NOW, 'mismatch' }
elseif status == 'done' then
  return { NOW, 'done', result }
elseif unwanted(r) then
  return { NOW, 'cancelled' }
elseif status == 'begun' and by ~= fence then
  local until_ms = begun + its_limit
  if until_ms > NOW then
    return { NOW, 'open', until_ms }
  elseif ARGV[9] == 'fail' then
    return { NOW, 'doubt' }
  end
end
if not r['u:' .. unit] and #r.units >= MOST_UNITS then
  return { NOW, 'many' }
end
local _, _, p99 = estimate_of(r.task .. '\1' .. unit)
if r.deadline - NOW < math.max(needs, p99 or 0, 1) then
  return { NOW, 'short' }
end
local J = P .. 'job:' .. id
call('HSET', J, 'u:' .. unit, 'begun ' .. fence .. ' ' .. str(NOW) .. ' ' .. ARGV[8] .. ' ' .. print .. ' ')
local ttl = math.max(r.deadline - NOW, limit) + UNIT_LIMIT + tonumber(ARGV[10])
if call('PTTL', J) < ttl then
  call('PEXPIRE', J, ttl)
end
return { NOW, 'run' }
