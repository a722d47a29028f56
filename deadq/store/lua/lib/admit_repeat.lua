-- Part of admit: a submit whose key is known.

local OPEN = { ready = true, suspect = true, later = true, running = true, strange = true }

-- What the record under the same key says: a verdict; or nil, and what is left of an earlier life.
-- `attach` is called again from outside once the cap is passed.
local attach
local function repeated(i, id)
  --! use: record waiting ending back
  flush()
  local token, deadline = ARGV[i + 8], num(ARGV[i + 4])
  -- Only what is needed: the whole record holds a token for each of maybe thousands of callers.
  local f = redis.pcall('HMGET', JOB .. id, 'state', 'fingerprint', 'deadline', 'estimate', 'born', 'seq',
    'cancel', 'fifo', token, 'version')
  local r = { state = f[1], fingerprint = f[2], deadline = num(f[3]), estimate = num(f[4] or 0), born = num(f[5]),
    seq = num(f[6]), cancel = f[7], fifo = f[8] or nil, [token] = f[9] }
  local open = OPEN[r.state]
  if f.err or not (r.state and r.fingerprint and r.deadline and r.estimate and num(f[10])) or open and not (r.born and r.seq) then
    set_aside(id, id, 'not a record', retention)
    call('DEL', JOB .. id)
    return nil, {}
  elseif r.state == 'malformed' then
    return nil, {}
  elseif r.fingerprint ~= ARGV[i + 2] then
    return refuse('key_reused')
  elseif r[token] then -- the same call once more: its reply was lost
    if string.sub(r[token], 1, 1) == '0' then
      return 'duplicate', num(call('ZSCORE', DUE, id)) or num(r[token])
    end
    return 'admitted', num(r[token])
  end

  -- Hold a token; a later deadline raises the job's own, but a run keeps its instant.
  attach = function()
    local due = num(call('ZSCORE', DUE, id)) or 0
    count('duplicate', 1)
    call('HSET', JOB .. id, token, '0' .. str(deadline)) -- the 0 says: came as a duplicate
    if r.cancel then -- wanted once more while it is being stopped
      call('HSET', JOB .. id, 'again', '1')
    end
    if deadline <= due then
      return 'duplicate', due, 0
    end
    local ttl = deadline - NOW + UNIT_LIMIT + retention
    call('ZADD', DUE, deadline, id)
    call('PEXPIRE', JOB .. id, ttl)
    call('PEXPIRE', DATA .. id, ttl)
    if r.state ~= 'running' then
      r.deadline = deadline
      call('HSET', JOB .. id, 'deadline', deadline)
      if r.state == 'ready' or r.state == 'suspect' then
        put_waiting(id, r)
      end
    end
    return 'duplicate', deadline, 0
  end

  if r.state == 'done' or r.state == 'failed' or r.state == 'crashed' then
    count('duplicate', 1)
    local left = deadline - NOW + 1000 -- this caller must still find it
    if call('PTTL', JOB .. id) < left then
      call('PEXPIRE', JOB .. id, left)
      call('PEXPIRE', P .. 'result:' .. id, left)
    end
    return 'duplicate', r.deadline
  elseif not open then
    return nil, load(id) or {}
  elseif (num(call('ZSCORE', DUE, id)) or 0) > NOW then
    return attach()
  elseif r.state ~= 'running' then -- dead, only nobody has swept it yet
    r = load(id)
    if not r then
      set_aside(id, id, 'bad number', retention)
      return nil, {}
    end
    expire(id, r, 'queue', retention)
  end
  return nil, r
end
