-- What is left of the retry budget (DESIGN 7): ratio * first attempts of the window + floor * window
-- - tokens spent in it - tokens lent out. A slot that the window covers in part counts for what was
-- spent, not for what was earned, so that the bound holds in every window.

--! use: budget_note

local HEDGE_SHARE = 0.05 -- of first attempts; it has no floor

-- Tokens, and how many hedges may be made; `but`: a holder whose loan is not counted.
local function budget_left(but)
  local flat = redis.pcall('HGETALL', BUDGET)
  local f = {}
  for i = 1, flat.err and 0 or #flat, 2 do
    f[flat[i]] = flat[i + 1]
  end
  local ratio, floor, window = string.match(f.rule or '', '^(%S+) (%S+) (%S+)$')
  ratio, floor, window = num(ratio) or 0.1, num(floor) or 1, num(window) or 10000
  local earned, gone, hedges = 0, 0, 0
  for name, value in pairs(f) do
    local kind, rest = string.match(name, '^([fsho])(.*)$')
    if kind == 'o' then
      local tokens, until_ms = string.match(value, '^(%d+) (%d+) ')
      -- no loan is for longer: the clock has stepped back since, or nobody lent it
      if (num(until_ms) or 0) <= NOW or num(until_ms) > NOW + 2 * LONGEST then
        call('HDEL', BUDGET, name)
      elseif rest ~= but then
        gone = gone + (num(tokens) or 0)
      end
    elseif kind and num(rest) then
      local begins, n = num(rest) * SLOT, num(value) or 0
      if begins > NOW + LONGEST then -- nor does any pause reach so far
        call('HDEL', BUDGET, name)
      elseif kind == 'f' and begins > NOW - window then
        earned = earned + n
      elseif kind == 's' and begins + SLOT > NOW - window then
        gone = gone + n
      elseif kind == 'h' and begins + SLOT > NOW - window then
        hedges = hedges + n
      end
    end
  end
  return ratio * earned + floor * window / 1000 - gone, HEDGE_SHARE * earned - hedges
end

-- Whether a retry may be made now; then its token is spent.
local function budget_take()
  if budget_left() < 1 then
    return false
  end
  budget_note('s', 1, NOW)
  return true
end

-- Why no hedge may be made now: 'share' or 'budget'; nil: one may, and then its token is spent.
local function hedge_denied()
  local left, room = budget_left()
  if room < 1 then
    return 'share'
  elseif left < 1 then
    return 'budget'
  end
  budget_note('s', 1, NOW)
  budget_note('h', 1, NOW)
end
