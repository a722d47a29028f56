-- Host and process of those that run a job, as operators look for them.
local function who_runs(...)
  local found = {}
  for _, owner in ipairs({ ... }) do
    local who = owner and redis.pcall('HGET', P .. 'worker:' .. owner, 'who')
    if type(who) == 'string' then
      found[#found + 1] = who
    end
  end
  return table.concat(found, ' ')
end
