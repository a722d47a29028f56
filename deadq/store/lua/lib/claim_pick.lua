-- Part of claim: the first of those waiting that this child may run.

local taken, hopeless = {}, {} -- each {set, member, id, record}

-- A page at a time; what is taken leaves the set at the end, so it is stepped over until then.
-- Returns how many are left for others, and the first of them.
local function pick(set, most)
  local left, skipped, looked, foreign = 0, 0, 0, nil
  while #taken < most and looked < 1000 do
    local page = call('ZRANGE', set, left, left + math.min(200, most - #taken) - 1)
    if #page == 0 then
      break
    end
    for _, m in ipairs(page) do
      looked = looked + 1
      local what, id, r = inspect(set, m)
      if what then
        left = left + 1
      end
      if what == 'take' then
        taken[#taken + 1] = { set, m, id, r }
      elseif what == 'hopeless' then
        hopeless[#hopeless + 1] = { set, m, id, r }
      elseif what == 'skip' then
        skipped = skipped + 1
        foreign = foreign or r
      end
    end
  end
  if looked >= 1000 and skipped < looked then
    reply[3] = '1'
  end
  return skipped, foreign
end
