-- How a job ends: moves that several transitions share.

-- Tell everybody who holds a token; one notice for each reply channel.
local function notify(id, r)
  local told = {}
  for _, f in ipairs(r.tokens) do
    local kind, channel = string.match(f, '^w:([sp])([^.]+)')
    if kind and not told[channel] then
      told[channel] = true
      -- an older server, a narrow ACL: the notice is never the state
      redis.pcall(kind == 's' and 'SPUBLISH' or 'PUBLISH', P .. 'reply:' .. channel, id)
    end
  end
end

-- Whether somebody still waits: a token whose own deadline has not passed.
local function awaited(r)
  for _, f in ipairs(r.tokens) do
    if r[f] and (num(r[f]) or 0) > NOW then
      return true
    end
  end
  return false
end

-- States that a new submit brings back to life. They keep their tokens, so that a submit that is
-- only sent again is not taken for a new one.
local REVIVED = { cancelled = true, expired = true, exhausted = true, exceeded = true }

-- How long an outcome is kept: briefly, unless it has an effect.
local function keep_of(r, retention)
  return r.units[1] and retention or math.min(BRIEF, retention)
end

-- The record of a job that has ended: made anew with what is still of use. `blob` is the encoded result or error; a small one
-- lives in the record. `replayable` keeps the payload.
local function write_end(id, r, state, keep_ms, blob, replayable)
  local J = P .. 'job:' .. id
  local rec = { 'state', state, 'finished', NOW, 'key', r.key or '', 'fingerprint', r.fingerprint or '',
    'task', r.task or '', 'deadline', r.deadline, 'version', r.version }
  local function keep(f)
    if r[f] then
      rec[#rec + 1], rec[#rec + 2] = f, r[f]
    end
  end
  keep('attempt')
  keep('fence')
  keep('replay')
  keep('twin')
  if replayable then
    keep('retries')
    keep('once')
    keep('marks')
    keep('data')
    keep('data2')
    keep('data3')
    if not r.data then
      call('PEXPIRE', P .. 'data:' .. id, keep_ms)
    end
  elseif not r.data then
    call('DEL', P .. 'data:' .. id)
  end
  if blob and #blob > 64 then
    call('SET', P .. 'result:' .. id, blob, 'PX', keep_ms)
  elseif blob then
    rec[#rec + 1], rec[#rec + 2] = 'result', blob
  end
  call('DEL', J) -- only now: nothing can fail any more before it is there again
  call('HSET', J, unpack(rec))
  for _, list in ipairs({ r.units, REVIVED[state] and r.tokens or {} }) do
    for _, f in ipairs(list) do
      if r[f] then
        call('HSET', J, f, r[f]) -- one by one: there may be thousands, more than unpack takes
      end
    end
  end
  call('PEXPIRE', J, keep_ms)
  notify(id, r)
end

-- A final state: out of all sets, and on record.
local function settle(id, r, state, keep_ms, blob, replayable)
  call('ZREM', P .. 'due', id)
  off_queue(id, r)
  write_end(id, r, state, keep_ms, blob, replayable)
end

-- Whether its end is wanted: cancelled, and nobody has come back for it since.
local function unwanted(r)
  return r.cancel and not r.again
end

-- Out of time before it ever ran, or between two runs.
local function expire(id, r, where, retention)
  count('expired:' .. where)
  settle(id, r, 'expired', keep_of(r, retention))
end
