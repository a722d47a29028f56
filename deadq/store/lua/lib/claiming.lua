-- Part of claim and exchange: the claim itself, its arguments from ARGV[at] on.

local function claim(child, retention, at)
  local number, want, version, park = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
  local READY, SUSPECTS, RUN, W = P .. 'ready', P .. 'suspects', P .. 'run:' .. child, P .. 'worker:' .. child
  local HEDGES, SWEEP = P .. 'hedges', 100
  local reply = { NOW, 0, '' }

  local function give(id, r, fence)
    reply[#reply + 1] = { id, r.key or '', r.task, str(r.deadline), str(num(r.attempt) or 0), str(num(fence)),
      r.fails or '0', payload_of(id, r), r.retries or '0', r.marks or '', r.twin or '' }
  end

  local lease = call('ZSCORE', P .. 'workers', child)
  if not lease or tonumber(lease) <= NOW then
    return { NOW, 'unknown' }
  end
  --! use: claim_park

  local known = call('HMGET', W, 'claim', 'slots')
  local last, single = num(known[1]) or 0, known[2] == '1'
  if number == last then
    call('ZREM', P .. 'parked', child) -- as for the first one
    for _, id in ipairs(call('SMEMBERS', RUN)) do
      local r = load(id)
      if r and r.owner == child and num(r.claim) == number then
        give(id, r, r.fence)
      elseif r and r.owner2 == child and num(r.claim2) == number then
        give(id, r, r.fence2)
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
    --! use: back sweep fleet twice lapse
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

  local hedged = {} -- each {id, record}
  local alone = taken[1] and taken[1][1] == SUSPECTS
  if #taken < want and not alone and call('ZRANGEBYSCORE', HEDGES, '-inf', str(NOW), 'LIMIT', 0, 1)[1] then
    --! use: claim_hedge
  end
  if taken[1] or hedged[1] then
    --! use: claim_give
  end
  if suspects > 0 or suspected > 0 then
    --! use: by_name
    wake_for_suspects()
  end
  return park_or_hand_on(#taken + #hedged, skipped, foreign)
end
