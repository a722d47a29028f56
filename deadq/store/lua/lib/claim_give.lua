-- Part of claim: handing out what was taken, and the second runs of stragglers, under new fences.

local n, J = #taken, P .. 'job:'
local fence, ids = math.max((num(call('GET', P .. 'fence')) or 0) + 1, US), { RUN }
call('SET', P .. 'fence', str(fence + n + #hedged - 1))
if n > 0 then
  count('started', n)
  local firsts, members = 0, { taken[1][1] }
  for i, t in ipairs(taken) do
    local id, r = t[3], t[4]
    r.fence, r.attempt = fence + i - 1, (num(r.attempt) or 0) + 1
    firsts = firsts + (r.attempt == 1 and 1 or 0)
    call('HSET', J .. id, 'state', 'running', 'owner', child, 'claim', number,
      'fence', str(r.fence), 'attempt', r.attempt)
    if r.probe then
      call('HSET', J .. id, 'probe', r.probe)
    end
    if r.marks and string.find(r.marks, 'h', 1, true) then
      --! use: hedging
      may_straggle(id, r)
    end
    ids[i + 1], members[i + 1] = id, t[2]
    give(id, r, r.fence)
  end
  call('ZREM', unpack(members))
  if firsts > 0 then
    --! use: budget_note
    budget_note('f', firsts, NOW)
  end
end
for i, h in ipairs(hedged) do
  local id, r = h[1], h[2]
  local second = fence + n + i - 1
  call('HSET', J .. id, 'owner2', child, 'claim2', number, 'fence2', str(second), 'began2', str(NOW))
  call('ZADD', P .. 'twice', str(NOW), id)
  ids[n + i + 1] = id
  give(id, r, second)
end
if #hedged > 0 then
  count('hedged', #hedged)
end
call('SADD', unpack(ids))
