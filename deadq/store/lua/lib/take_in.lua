-- Part of finish: service times, each counted at once or set aside for a moment.

-- A histogram costs as much to renew for one sample as for fifty. Once it is well founded, plain
-- samples wait in `q:<task>` ("<us> <us> ...") until the digest is this old; what says more (a
-- probe, a run cut short) never waits.
local WAIT, MOST_WAITING, FOUNDED = 20, 512, 150 -- ms, bytes, samples

local function take_in(task, samples)
  local service, field = P .. 'service', 'q:' .. task
  local f = call('HMGET', service, 'all', 's:' .. task, field)
  local known, at, set_aside = num(string.match(f[1] or '', '^(%S+)')) or 0, num(string.match(f[2] or '', '(%S+)$')), f[3] or ''
  local text, plain = set_aside, true
  for _, s in ipairs(samples) do
    text = text .. ' ' .. s[1]
    plain = plain and not s[2] and not s[3]
  end
  if plain and at and known >= FOUNDED and NOW - at < WAIT and #set_aside < MOST_WAITING then
    call('HSET', service, field, text)
    return
  end
  --! use: learn
  if set_aside ~= '' then
    local all = {}
    for us in string.gmatch(set_aside, '%S+') do
      us = num(us)
      if us then
        all[#all + 1] = { us, false, false }
      end
    end
    for _, s in ipairs(samples) do
      all[#all + 1] = s
    end
    samples = all
    call('HDEL', service, field)
  end
  learn(task, samples)
end
