-- Part of claim: what a child that was given less than it wanted does next, and who else goes on.

local PARK_GRACE = 1000 -- ms beyond the end of its wait that a child may take to claim

-- Whether a parked worker wakes by then and looks at the stragglers: one is enough. One whose wait
-- is over already looks now, or is dead.
local function watched(at)
  local from, to = str(NOW + PARK_GRACE), str(at + PARK_GRACE)
  return #call('ZRANGEBYSCORE', P .. 'parked', from, to, 'LIMIT', 0, 1) > 0
end

-- When the next straggler is to be looked at; what is due was just looked at.
local function next_hedge()
  local found = call('ZRANGEBYSCORE', HEDGES, '(' .. str(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return tonumber(found[2] or '')
end

-- Full: hand the token on while work is left. Not full, and all looked at: park until something is due.
-- `foreign`: a job for others. The token that woke this child may have been meant for one that knows
-- it: pass it on by name, so that no two children pass a token to and fro that neither can use.
local function park_or_hand_on(given, skipped, foreign, again)
  if foreign then
    --! use: by_name
    wake_who_knows(foreign.task, foreign.version)
  end
  local hedge = call('ZRANGE', HEDGES, 0, 0, 'WITHSCORES')[2]
  if given >= want then
    wake(call('ZCARD', READY) - skipped)
  elseif park ~= '' and reply[3] == '' then
    local until_ms = NOW + 60000
    local later = call('ZRANGE', P .. 'later', 0, 0, 'WITHSCORES')
    if later[2] then
      until_ms = math.min(until_ms, tonumber(later[2]))
    end
    local at = hedge and next_hedge()
    if at and at < until_ms and not watched(at) then
      until_ms = at
    end
    reply[2] = until_ms
    call('ZADD', P .. 'parked', until_ms + PARK_GRACE, child)
    if park == '2' then -- it listens for messages alone: it must hear that it is parked now
      tell(child, 'parked ' .. child)
    end
    if again then -- a repeat looks at nothing new: let a token have it looked at
      --! use: by_name
      wake_for_suspects() -- by name first: whom it wakes can use no token
      wake(call('ZCARD', READY))
    end
  end
  if reply[2] == 0 and hedge and not watched(tonumber(hedge)) then
    wake(1) -- somebody else, to wait for that instant, or to look now
  end
  return reply
end
