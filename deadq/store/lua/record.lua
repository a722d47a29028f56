--! use: base passing tell record service learn
-- record: how a unit ended. The fence that began it may record it until another begins it.
--
-- ARGV 1 now   2 id   3 fence   4 unit   5 'done' or 'raised'   6 microseconds it ran   7 result
-- reply: now, 'ok', 'stale' or 'gone'

local id, fence, unit, J = ARGV[2], ARGV[3], ARGV[4], P .. 'job:' .. ARGV[2]
local r, why = load(id)
if not r or why == 'absent' then
  return { NOW, 'gone' }
end
local status, by, rest = string.match(r['u:' .. unit] or '', '^(%l+) (%d+) (%d+ %d+ %x+) ')
if by ~= fence then
  return { NOW, 'stale' }
elseif status ~= 'begun' then
  return { NOW, 'ok' } -- the same call once more
end
call('HSET', J, 'u:' .. unit, ARGV[5] .. ' ' .. fence .. ' ' .. rest .. ' ' .. ARGV[7])
if r.state == 'running' and r.fence ~= fence then -- a later attempt may be waiting for this
  tell(r.owner, 'unit ' .. id .. ' ' .. r.fence)
end
learn_unit(r.task .. '\1' .. unit, num(ARGV[6]) or 0)
return { NOW, 'ok' }
