-- Workers: `workers` is a zset of children by lease expiry, `worker:<child>` what each can do.
-- `fleet` is a digest of both, made anew whenever the set of workers changes.

-- Sum up the living: their slots, when the first lease ends, and the newest version of each task known.
local function refresh_fleet()
  local lapse, slots, known, text = 0, 0, {}, {}
  local live = call('ZRANGEBYSCORE', P .. 'workers', '(' .. str(NOW), '+inf', 'WITHSCORES')
  for i = 1, #live, 2 do
    local w = redis.pcall('HMGET', P .. 'worker:' .. live[i], 'slots', 'version', 'tasks')
    slots = slots + (num(w[1]) or 0)
    if lapse == 0 then
      lapse = tonumber(live[i + 1])
    end
    for task in string.gmatch(w[3] or '', '[^\n]+') do
      known[task] = math.max(known[task] or 0, num(w[2]) or 0)
    end
  end
  for task, version in pairs(known) do
    text[#text + 1] = version .. ' ' .. task
  end
  call('HSET', P .. 'fleet', 'slots', slots, 'lapse', str(lapse), 'known', table.concat(text, '\n'))
  return slots
end

-- Slots of all living workers. The digest is good until the first lease in it ends.
local function fleet_slots()
  local f = call('HMGET', P .. 'fleet', 'slots', 'lapse')
  local slots, lapse = num(f[1]) or 0, num(f[2]) or 0
  if slots > 0 and lapse <= NOW then
    slots = refresh_fleet()
  end
  return slots
end
