--! use: base wake
-- admit: decide on one or many submits, in order: malformed, duplicate, paused, expired, share
-- of the cap, cap, feasibility; accept. A refusal writes nothing but counters. A submit without task
-- and fingerprint is a replay: what it leaves out is in the record of the dead job.
--
-- ARGV 1 now   2 capacity   3 'deadline' or 'fifo'   4 'feasible' or 'cap'   5 retention ms
-- then thirteen for each job: id, key, fingerprint, task, deadline ms, not before ms (0: at once),
-- criticality 0..3, retries, token, payload, '1' when a crash ends it, marks, twin
-- reply: now, then for each job: verdict, deadline in force ms, retry-after hint ms
--   admitted | duplicate | malformed | key_reused | not_dead | paused | expired | full | unmeetable

local capacity, fifo, feasible = tonumber(ARGV[2]), ARGV[3] == 'fifo', ARGV[4] == 'feasible'
local retention = tonumber(ARGV[5])
local CAP_SHARE = { ['0'] = 1, ['1'] = 1, ['2'] = 0.75, ['3'] = 0.5 } -- critical_plus, critical, sheddable_plus, sheddable
local WAIT_SHARE = { ['0'] = 1, ['1'] = 0.9, ['2'] = 0.6, ['3'] = 0.4 }
local DUE, READY, LATER, DELAYED = P .. 'due', P .. 'ready', P .. 'later', P .. 'delayed'
local JOB, DATA, jobs = P .. 'job:', P .. 'data:', (#ARGV - 5) / 13

-- Needs memory: on a full server this fails before anything was changed.
count('offered', jobs)
local fleet = call('HMGET', P .. 'fleet', 'slots', 'lapse', 'paused', 'suspects')
local slots, lapse, paused = num(fleet[1]) or 0, num(fleet[2]) or 0, fleet[3]
if slots > 0 and lapse <= NOW then
  --! use: fleet
  slots = refresh_fleet()
end
if call('ZRANGEBYSCORE', DUE, '-inf', NOW, 'LIMIT', 0, 1)[1] then
  --! use: record waiting ending back sweep
  sweep_expired(4 + jobs, retention)
end
local live = call('ZCOUNT', DUE, '(' .. str(NOW), '+inf') -- exact: nothing else runs meanwhile
local admitted, before, fresh = nil, 0, 0
local mean, sd

local function refuse(why, hint)
  count('rejected:' .. why, 1)
  return why, 0, math.ceil(hint or 0)
end

local function full()
  --! use: service
  return refuse('full', math.max(1, live * queue_service() / math.max(1, slots)))
end

-- Members of `due` and `ready` still to be added: one command for the whole batch.
local due_pending, ready_pending = { DUE }, { READY }
local function flush()
  if #due_pending > 1 then
    call('ZADD', unpack(due_pending))
    due_pending = { DUE }
  end
  if #ready_pending > 1 then
    call('ZADD', unpack(ready_pending))
    ready_pending = { READY }
  end
end

--! use: admit_fit admit_accept admit_repeat

local function decide(i)
  local id = ARGV[i]
  local deadline, not_before, crit = num(ARGV[i + 4]), ARGV[i + 5] == '0' and 0 or num(ARGV[i + 5]), ARGV[i + 6]
  if not deadline or not not_before or not CAP_SHARE[crit] or id == ''
    or ARGV[i + 3] == '' and ARGV[i + 2] ~= '' then
    return refuse('malformed')
  end
  local verdict, old
  if ARGV[i + 3] == '' then
    --! use: admit_replay
    verdict, old = replayed(i, id)
  end
  if not verdict and not old and call('EXISTS', JOB .. id) == 1 then
    verdict, old = repeated(i, id)
  end
  if verdict then
    return verdict, old, 0
  end
  if paused then
    return refuse('paused')
  elseif deadline <= NOW then
    return refuse('expired')
  elseif live >= math.ceil(capacity * CAP_SHARE[crit]) then
    return full()
  elseif old and old.state == 'running' then -- past its own deadline, not settled: counts again
    live = live + 1
    return attach()
  end
  local estimate, as_probe = 0, false
  if not_before > NOW then
    --! use: admit_later
    estimate, as_probe = fit_later(ARGV[i + 3], deadline, not_before)
    if estimate == 'full' then
      return full()
    end
  elseif feasible and slots > 0 then
    estimate, as_probe = fit(id, ARGV[i + 3], deadline, crit)
  end
  if not estimate then
    return refuse('unmeetable', as_probe)
  end
  return accept(i, id, old, deadline, not_before, estimate, as_probe)
end

local reply = { NOW }
for i = 6, #ARGV, 13 do
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = decide(i)
end
flush()
if admitted then
  count('admitted', admitted - before)
end
if fresh > 0 then
  wake(fresh)
end
return reply
