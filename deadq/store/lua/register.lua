--! use: base passing tell wake record waiting ending back fleet twice lapse by_name
-- register: a child takes up work under an id of its own; jobs that it knows leave `strange`. Ids of
-- the form "<post>.<name>" share the control list of their post.
-- ARGV 1 now   2 child   3 lease ms   4 slots   5 newest record version known   6 host and process
--      7 retention ms   8 rule of the retry budget   9.. tasks known
-- reply: now, the child's id

local child, lease, version = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[5])
local tasks, mine = {}, {}
for i = 9, #ARGV do
  tasks[#tasks + 1] = ARGV[i]
  mine[ARGV[i]] = true
end
call('HSET', P .. 'worker:' .. child, 'slots', ARGV[4], 'version', ARGV[5], 'who', ARGV[6],
  'tasks', table.concat(tasks, '\n'), 'since', str(NOW))
call('PEXPIRE', P .. 'worker:' .. child, str(lease + UNIT_LIMIT))
call('ZADD', P .. 'workers', str(NOW + lease), child)
redis.pcall('HSET', P .. 'budget', 'rule', ARGV[8])
sweep_lapsed(tonumber(ARGV[7]))
refresh_fleet()

local back = 0
for _, id in ipairs(call('ZRANGE', P .. 'strange', 0, -1)) do
  local r, why = load(id)
  if not r or why == 'absent' then
    call('ZREM', P .. 'strange', id)
  elseif mine[r.task] and r.version <= version and r.deadline > NOW then
    call('ZREM', P .. 'strange', id)
    back = back + (let_wait(id, r) == 'ready' and 1 or 0)
  end
end
if suspected > 0 then
  wake_for_suspects() -- by name first: whom it wakes can use no token
end
if back > 0 then
  wake(back)
end
return { NOW, child }
