--! use: base passing tell wake record waiting ending back sweep fleet twice lapse by_name
-- renew: prolong the leases of children, keep their records alive, and do the housekeeping that
-- otherwise waits for the next claim.
--
-- ARGV 1 now   2 lease ms   3 retention ms   4 children
-- then for each child: id, claim number last answered, jobs held, and id and fence of each job
-- reply: now, when the first lease of the fleet ends (ms) or 0, how many suspects wait, how many tokens
--   nobody had taken yet, then for each child:
--   'ok' or 'unknown', list of {id, word}, and the number of the last claim carried out for it
--   word: 'lost' (no longer this child's) | 'cancel' (somebody cancelled it)

local lease, retention = tonumber(ARGV[2]), tonumber(ARGV[3])
local keep = str(lease * 2 + UNIT_LIMIT + retention)

-- Jobs handed out under a claim whose answer the child has seen, and which it does not hold.
local function take_back(child, number, held)
  for _, id in ipairs(call('SMEMBERS', P .. 'run:' .. child)) do
    if not held[id] then
      local r, why = load(id)
      if not r or why == 'absent' or r.owner ~= child and r.owner2 ~= child then
        call('SREM', P .. 'run:' .. child, id)
      elseif (num(r.owner == child and r.claim or r.claim2) or 0) <= number then
        if not other_goes_on(id, r, child) and take_from(id, r, retention) == 'ready' then
          wake(1)
        end
      end
    end
  end
end

local function renew(child, number, held)
  local words = {}
  local score = call('ZSCORE', P .. 'workers', child)
  if not score or tonumber(score) <= NOW then
    return 'unknown', words, 0
  end
  call('ZADD', P .. 'workers', str(NOW + lease), child)
  call('PEXPIRE', P .. 'worker:' .. child, str(lease + UNIT_LIMIT))
  for id, fence in pairs(held) do
    local r = call('HMGET', P .. 'job:' .. id, 'owner', 'fence', 'cancel', 'owner2', 'fence2')
    if not (r[1] == child and r[2] == fence or r[4] == child and r[5] == fence) then
      words[#words + 1] = { id, 'lost' }
    else
      if r[3] then
        words[#words + 1] = { id, 'cancel' }
      end
      if call('PTTL', P .. 'job:' .. id) < tonumber(keep) then
        call('PEXPIRE', P .. 'job:' .. id, keep)
        call('PEXPIRE', P .. 'data:' .. id, keep)
      end
    end
  end
  take_back(child, number, held)
  return 'ok', words, num(redis.pcall('HGET', P .. 'worker:' .. child, 'claim')) or 0
end

local reply, i = { NOW, 0, 0, call('LLEN', P .. 'wake') }, 5
for _ = 1, tonumber(ARGV[4]) do
  local child, number, n, held = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), {}
  for j = i + 3, i + 1 + 2 * n, 2 do
    held[ARGV[j]] = ARGV[j + 1]
  end
  i = i + 3 + 2 * n
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = renew(child, number, held)
end
sweep_lapsed(retention)
sweep_expired(100, retention)
promote_due(100, retention)
reply[3] = call('ZCARD', P .. 'suspects')
if reply[3] > 0 then
  wake_for_suspects() -- by name first: whom it wakes can use no token
else
  call('HDEL', P .. 'fleet', 'suspects')
end
local waiting = call('ZCARD', P .. 'ready')
if waiting > 0 then
  wake(waiting) -- a token may have gone down with a dying worker
end
if call('ZRANGEBYSCORE', P .. 'hedges', '-inf', str(NOW), 'LIMIT', 0, 1)[1] then
  wake(1) -- who was to wait for it may be gone
end
local first = call('ZRANGE', P .. 'workers', 0, 0, 'WITHSCORES')
if first[2] then
  reply[2] = tonumber(first[2])
end
return reply
