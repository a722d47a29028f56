-- Waking a parked child by name, where a token might be eaten by one that can do nothing with it.

local function knows(child, task, version)
  return child[2] >= version and string.find(child[3], '\n' .. task .. '\n', 1, true)
end

-- It counts as parked no longer: nobody wakes it twice.
local function wake_up(child)
  call('ZREM', P .. 'parked', child[1])
  tell(child[1], 'token ' .. child[1])
end

-- Calls `visit` for the parked, at most 256 of them, until it returns true.
local function visit_parked(visit)
  for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'parked', NOW, '+inf', 'LIMIT', 0, 256)) do
    local w = redis.pcall('HMGET', P .. 'worker:' .. name, 'slots', 'version', 'tasks')
    if visit({ name, num(w[2]) or 0, '\n' .. (w[3] or '') .. '\n' }, w[1]) then
      return
    end
  end
end

local function wake_who_knows(task, version)
  visit_parked(function(child)
    if knows(child, task, version) then
      wake_up(child)
      return true
    end
  end)
end

-- Each suspect wants a child of one slot.
local function wake_for_suspects()
  local want = {}
  for _, m in ipairs(call('ZRANGE', P .. 'suspects', 0, 99)) do
    local r = redis.pcall('HMGET', P .. 'job:' .. id_of(m), 'task', 'version')
    if r[1] and num(r[2]) then
      want[#want + 1] = { r[1], num(r[2]) }
    end
  end
  if #want == 0 then
    return
  end
  visit_parked(function(child, slots)
    for i, w in ipairs(slots == '1' and want or {}) do
      if knows(child, w[1], w[2]) then
        wake_up(child)
        table.remove(want, i)
        break
      end
    end
    return #want == 0
  end)
end
