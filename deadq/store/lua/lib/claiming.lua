-- Part of claim and exchange: the claim itself, its arguments from ARGV[at] on.

local function claim(child, retention, at)
  local number, want, version, park = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  local READY, SUSPECTS, RUN, W = P .. 'ready', P .. 'suspects', P .. 'run:' .. child, P .. 'worker:' .. child
  local SWEEP = 100
  local reply = { NOW, 0, '' }

  local function give(id, r, payload)
    reply[#reply + 1] = { id, r.key or '', r.task, str(r.deadline), str(r.attempt), str(r.fence),
      r.fails or '0', payload, r.retries or '0', r.marks or '' }
  end

  local lease = call('ZSCORE', P .. 'workers', child)
  if not lease or tonumber(lease) <= NOW then
    return { NOW, 'unknown' }
  end
  --! use: claim_park

  local known = call('HMGET', W, 'claim', 'slots')
  local last, single = num(known[1]) or 0, known[2] == '1'
  if number == last then
    for _, id in ipairs(call('SMEMBERS', RUN)) do
      local r = load(id)
      if r and r.owner == child and num(r.claim) == number then
        r.attempt, r.fence = num(r.attempt), num(r.fence)
        give(id, r, payload_of(id, r))
      end
    end
    return park_or_hand_on(#reply - 3, 0, nil, true)
  elseif number < last then
    return reply
  end
  call('HSET', W, 'claim', number)
  call('ZREM', P .. 'parked', child)
  -- Expiry first, and whatever else has fallen due; what that needs is made only then.
  local past, housekeeping = { '-inf', str(NOW), 'LIMIT', 0, 1 }, false
  for _, set in ipairs({ 'workers', 'due', 'later' }) do
    housekeeping = housekeeping or call('ZRANGEBYSCORE', P .. set, unpack(past))[1]
  end
  if housekeeping then
    --! use: back sweep fleet lapse
    sweep_lapsed(retention)
    if sweep_expired(SWEEP, retention) >= SWEEP then
      reply[3] = '1'
    end
    promote_due(SWEEP, retention)
  end

  local mine, fleet = {}, nil
  for i = at + 4, #ARGV do
    mine[ARGV[i]] = true
  end
  local estimates = {}
  --! use: claim_inspect claim_pick

  local suspects, skipped, foreign = single and call('ZCARD', SUSPECTS) or 0, 0, nil
  if suspects > 0 then
    pick(SUSPECTS, math.min(want, 1))
  end
  if not taken[1] then -- a suspect is run alone
    skipped, foreign = pick(READY, want)
  end
  if hopeless[1] then
    --! use: fleet claim_hopeless
  end

  if #taken > 0 then
    local fence, ids, members = math.max((num(call('GET', P .. 'fence')) or 0) + 1, US), { RUN }, { taken[1][1] }
    call('SET', P .. 'fence', str(fence + #taken - 1))
    count('started', #taken)
    local firsts = 0
    for i, t in ipairs(taken) do
      local id, r = t[3], t[4]
      r.fence, r.attempt = fence + i - 1, (num(r.attempt) or 0) + 1
      firsts = firsts + (r.attempt == 1 and 1 or 0)
      call('HSET', P .. 'job:' .. id, 'state', 'running', 'owner', child, 'claim', number,
        'fence', str(r.fence), 'attempt', r.attempt)
      if r.probe then
        call('HSET', P .. 'job:' .. id, 'probe', r.probe)
      end
      ids[i + 1], members[i + 1] = id, t[2]
      give(id, r, payload_of(id, r))
    end
    call('ZREM', unpack(members))
    call('SADD', unpack(ids))
    if firsts > 0 then
      --! use: budget_note
      budget_note('f', firsts, NOW)
    end
  end
  if suspects > 0 or suspected > 0 then
    --! use: by_name
    wake_for_suspects()
  end
  return park_or_hand_on(#taken, skipped, foreign)
end
