--! use: base
-- fetch: where jobs are, and the outcome of those that have ended. Changes nothing.
-- ARGV 1 now   2.. ids
-- reply: now, then for each: state ('' when there is no record), deadline ms, attempt, result or error, units with a recorded effect

local OPEN = { ready = true, suspect = true, later = true, strange = true, running = true }
local reply = { NOW }
for i = 2, #ARGV do
  local id = ARGV[i]
  local r = redis.pcall('HMGET', P .. 'job:' .. id, 'state', 'deadline', 'attempt', 'result')
  if r.err then
    r = { 'malformed' }
  end
  local state, deadline, attempt, result = r[1] or '', r[2] or '0', r[3] or '0', r[4]
  if not result and (state == 'done' or state == 'failed' or state == 'exhausted') then
    result = redis.pcall('GET', P .. 'result:' .. id)
    result = type(result) == 'string' and result
  end
  if OPEN[state] then
    deadline = call('ZSCORE', P .. 'due', id) or deadline
    if state ~= 'running' and (tonumber(deadline) or 0) <= NOW then
      state = 'expired' -- nobody has swept it yet; it will never start
    end
  end
  local units = {}
  if state ~= '' and state ~= 'done' and state ~= 'failed' and not (state == 'ready' and attempt == '0') then
    local flat = redis.pcall('HGETALL', P .. 'job:' .. id)
    for j = 1, flat.err and 0 or #flat, 2 do
      if string.sub(flat[j], 1, 2) == 'u:' and string.sub(flat[j + 1], 1, 5) == 'done ' then
        units[#units + 1] = string.sub(flat[j], 3)
      end
    end
  end
  reply[#reply + 1] = { state, deadline, attempt, result or '', units }
end
return reply
