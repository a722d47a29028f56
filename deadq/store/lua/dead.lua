--! use: base
-- dead: jobs that have failed for good, the newest first; or one job by its id, dead or not.
-- Changes nothing.
-- ARGV 1 now   2 most   3 id, or '' for the list
-- reply: now, then for each: id, key, task, state, ended ms, attempt, error

local reply = { NOW }
for _, id in ipairs(ARGV[3] ~= '' and { ARGV[3] } or call('ZREVRANGE', P .. 'dead', 0, -1)) do
  if #reply > tonumber(ARGV[2]) then
    break
  end
  local r = redis.pcall('HMGET', P .. 'job:' .. id, 'state', 'key', 'task', 'finished', 'attempt', 'result')
  if r[1] then -- its record may be gone: then nobody can replay it
    local blob = r[6] or redis.pcall('GET', P .. 'result:' .. id)
    reply[#reply + 1] = { id, r[2] or '', r[3] or '', r[1], r[4] or '0', r[5] or '0',
      type(blob) == 'string' and blob or '' }
  end
end
return reply
