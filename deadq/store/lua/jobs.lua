--! use: base record who_runs
-- jobs: unfinished jobs, the first ones first: of all by their deadlines, of one state as they wait
-- there. Changes nothing.
-- ARGV 1 now   2 a state, or ''   3 most
-- reply: now, then for each: id, key, task, state, deadline ms, attempt, host and process that run it
--   (of both runs of a job that runs twice)

local PLACES = { [''] = 'due', ready = 'ready', suspect = 'suspects', later = 'later', strange = 'strange' }
local state, last = ARGV[2], tonumber(ARGV[3]) - 1
local members, seen = {}, {}
if state == 'running' then
  for _, child in ipairs(call('ZRANGE', P .. 'workers', 0, -1)) do
    for _, id in ipairs(call('SMEMBERS', P .. 'run:' .. child)) do
      if #members <= last and not seen[id] then
        seen[id] = true
        members[#members + 1] = id
      end
    end
  end
elseif last >= 0 then
  members = call('ZRANGE', P .. PLACES[state], 0, last)
end

local reply = { NOW }
for _, m in ipairs(members) do
  local id = id_of(m)
  local r = redis.pcall('HMGET', P .. 'job:' .. id, 'key', 'task', 'state', 'deadline', 'attempt', 'owner', 'owner2')
  if not r.err and r[3] then -- else its record is gone, and the id goes at the next sweep
    local due = call('ZSCORE', P .. 'due', id) or r[4] or '0'
    local found = r[3]
    if found ~= 'running' and (num(due) or 0) <= NOW then
      found = 'expired' -- nobody has swept it yet; it will never start
    end
    reply[#reply + 1] = { id, r[1] or '', r[2] or '', found, due, r[5] or '0', who_runs(r[6], r[7]) }
  end
end
return reply
