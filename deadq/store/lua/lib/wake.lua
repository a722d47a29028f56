-- Parked workers: `parked` holds each by the instant its wait ends; `wake` holds the tokens.

-- Hand out up to n tokens, at most one for each parked worker.
local function wake(n)
  local parked = call('ZCOUNT', P .. 'parked', str(NOW), '+inf')
  if parked > 0 then
    local room = parked - call('LLEN', P .. 'wake')
    for _ = 1, math.min(n, room) do
      call('RPUSH', P .. 'wake', '1')
    end
  end
end

-- Something falls due at `at`: if every parked worker would sleep past it, wake one to wait anew.
local function wake_before(at)
  local first = call('ZRANGEBYSCORE', P .. 'parked', str(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if first[2] and tonumber(first[2]) > at then
    wake(1)
  end
end
