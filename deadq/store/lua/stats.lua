--! use: base
-- stats: depths and counters. Changes nothing.
-- ARGV 1 now
-- reply: now, live, ready, suspects, later, strange, unfinished, workers alive, slots, dead, flat
--   counters, whether it is paused (1 or 0)

local slots, live = 0, call('ZRANGEBYSCORE', P .. 'workers', '(' .. str(NOW), '+inf')
for _, child in ipairs(live) do
  slots = slots + (num(redis.pcall('HGET', P .. 'worker:' .. child, 'slots')) or 0)
end
return {
  NOW,
  call('ZCOUNT', P .. 'due', '(' .. str(NOW), '+inf'),
  call('ZCARD', P .. 'ready'),
  call('ZCARD', P .. 'suspects'),
  call('ZCARD', P .. 'later'),
  call('ZCARD', P .. 'strange'),
  call('ZCARD', P .. 'due'),
  #live,
  slots,
  call('ZCARD', P .. 'dead'),
  call('HGETALL', P .. 'stats'),
  call('HEXISTS', P .. 'fleet', 'paused'),
}
