--! use: base service
-- survey: what an operator's check wants to know: service times, and which commands the user may run.
-- What it writes to try that, it takes away again. Times as they were measured last: what admission
-- expects after a quiet spell tells nobody whether a task has time enough.
-- ARGV 1 now   2.. tasks
-- reply: now, mean ms over the queue, commands refused, then for each task: p50 ms, p95 ms (-1: no sample)

local K = P .. 'job:check:' -- no job has such an id
local TRIALS = {
  { 'HSET', K .. 'h', 'f', '1' }, { 'HGET', K .. 'h', 'f' }, { 'HMGET', K .. 'h', 'f' }, { 'HGETALL', K .. 'h' },
  { 'HINCRBY', K .. 'h', 'f', 1 }, { 'HLEN', K .. 'h' }, { 'HEXISTS', K .. 'h', 'f' }, { 'HDEL', K .. 'h', 'f' },
  { 'ZADD', K .. 'z', 1, 'm' }, { 'ZCARD', K .. 'z' }, { 'ZCOUNT', K .. 'z', 0, 1 }, { 'ZSCORE', K .. 'z', 'm' },
  { 'ZRANGE', K .. 'z', 0, 0 }, { 'ZREVRANGE', K .. 'z', 0, 0 }, { 'ZRANGEBYSCORE', K .. 'z', 0, 1 },
  { 'ZREMRANGEBYSCORE', K .. 'z', 0, 0 }, { 'ZREM', K .. 'z', 'm' },
  { 'SADD', K .. 's', 'm' }, { 'SMEMBERS', K .. 's' }, { 'SREM', K .. 's', 'm' },
  { 'SET', K .. 'v', '1' }, { 'GET', K .. 'v' }, { 'STRLEN', K .. 'v' }, { 'EXISTS', K .. 'v' },
  { 'PEXPIRE', K .. 'v', 1000 }, { 'PTTL', K .. 'v' }, { 'RPUSH', K .. 'l', '1' }, { 'LLEN', K .. 'l' },
  { 'PUBLISH', K .. 'c', '1' }, { 'DEL', K .. 'h', K .. 'z', K .. 's', K .. 'v', K .. 'l' },
}
local refused = {}
for _, trial in ipairs(TRIALS) do
  local got = redis.pcall(unpack(trial))
  local why = type(got) == 'table' and got.err or ''
  local full = string.find(why, 'OOM', 1, true) or string.find(why, 'READONLY', 1, true)
  if why ~= '' and not full and not string.find(why, 'MISCONF', 1, true) then -- these concern everybody
    refused[#refused + 1] = trial[1]
  end
end
for _, name in ipairs({ 'h', 'z', 's', 'v', 'l' }) do
  redis.pcall('PEXPIRE', K .. name, 1000) -- where DEL is refused
end

local reply = { NOW, str(math.ceil((queue_measured()))), refused }
for i = 2, #ARGV do
  local p50, p95 = measured(ARGV[i])
  reply[#reply + 1] = p50 and str(math.ceil(p50)) or '-1'
  reply[#reply + 1] = p95 and str(math.ceil(p95)) or '-1'
end
return reply
