-- Part of admit: storing an accepted job.

local function accept(i, id, old, deadline, not_before, estimate, as_probe)
  local J, ttl, later = JOB .. id, deadline - NOW + UNIT_LIMIT + retention, not_before > NOW
  if not admitted then
    before = num(call('HGET', P .. 'stats', 'admitted')) or 0
    admitted = before
  end
  admitted = admitted + 1
  local payload = ARGV[i + 9]
  local rec = { 'key', ARGV[i + 1], 'fingerprint', ARGV[i + 2], 'task', ARGV[i + 3], 'deadline', ARGV[i + 4],
    'born', NOW, 'seq', admitted, 'version', VERSION, 'state', later and 'later' or 'ready',
    ARGV[i + 8], ARGV[i + 4] }
  local n = #rec
  if estimate > 0 then
    rec[n + 1], rec[n + 2], n = 'estimate', estimate, n + 2
  end
  if ARGV[i + 7] ~= '0' then
    rec[n + 1], rec[n + 2], n = 'retries', ARGV[i + 7], n + 2
  end
  if fifo then
    rec[n + 1], rec[n + 2], n = 'fifo', '1', n + 2
  end
  if as_probe then
    rec[n + 1], rec[n + 2], n = 'probe', '1', n + 2
  end
  if ARGV[i + 10] ~= '' then
    rec[n + 1], rec[n + 2], n = 'once', '1', n + 2
  end
  if ARGV[i + 11] ~= '' then
    rec[n + 1], rec[n + 2], n = 'marks', ARGV[i + 11], n + 2
  end
  if ARGV[i + 12] ~= '' then
    rec[n + 1], rec[n + 2], n = 'twin', ARGV[i + 12], n + 2
  end
  local size = #payload
  if size > INLINE then
    call('SET', DATA .. id, payload, 'PX', ttl)
  else -- in pieces: one field over 64 bytes would turn the hash into a large table
    rec[n + 1], rec[n + 2], n = 'data', size > 64 and string.sub(payload, 1, 64) or payload, n + 2
    if size > 64 then
      rec[n + 1], rec[n + 2], n = 'data2', string.sub(payload, 65, 128), n + 2
    end
    if size > 128 then
      rec[n + 1], rec[n + 2], n = 'data3', string.sub(payload, 129), n + 2
    end
  end
  if old then -- an earlier life under this key: only its units are kept
    call('ZREM', P .. 'dead', id)
    if old.replayed then
      rec[n + 1], rec[n + 2], n = 'replay', old.replayed, n + 2
    end
    call('DEL', J, P .. 'result:' .. id)
  end
  call('HSET', J, unpack(rec))
  for _, f in ipairs(old and old.units or {}) do
    call('HSET', J, f, old[f]) -- one by one: there may be more than unpack takes
  end
  call('PEXPIRE', J, ttl)
  due_pending[#due_pending + 1], due_pending[#due_pending + 2] = deadline, id
  if later then
    call('ZADD', LATER, not_before, id)
    call('ZADD', DELAYED, not_before, id)
    wake_before(not_before)
  else
    ready_pending[#ready_pending + 1] = fifo and NOW or deadline - estimate
    ready_pending[#ready_pending + 1] = string.format('%010x:', admitted) .. id
    fresh = fresh + 1
  end
  live = live + 1
  return 'admitted', deadline, 0
end
