-- Every script: KEYS[1] is the queue's prefix `deadq:{name}:`; ARGV[1] is the time in ms, or ''
-- for the server's own clock, which is read once. All other keys share the prefix's hash tag.
local P = KEYS[1]
local call = redis.call
local suspected = 0 -- jobs put among the suspects by this call
local NOW, US
if ARGV[1] == '' then
  local t = call('TIME')
  US = t[1] * 1000000 + t[2]
  NOW = math.floor(US / 1000)
else
  NOW = tonumber(ARGV[1])
  US = NOW * 1000
end
local VERSION = 1 -- of the record's layout; a worker skips records newer than it knows
local UNIT_LIMIT = 30000 -- ms a unit may outlive its job's deadline
local MOST_UNITS = 1000 -- of one job: each step reads the record whole
local MOST_DEAD = 1000 -- entries in `dead`; the oldest leave first
local POISON = 3 -- workers dead, or their leases lapsed, that end a job
local INLINE = 192 -- bytes of arguments that live in the record itself
local BRIEF = 60000 -- ms that an outcome without effect or result is kept

local function str(n)
  return string.format('%.0f', n)
end

-- A finite number below 2^53, or nil: planted text such as 'nan' or '1e999' must not get through.
local function num(v)
  local n = tonumber(v)
  if n and n == n and n > -9007199254740992 and n < 9007199254740992 then
    return n
  end
end

-- Garbage where a counter belongs starts over: it must not stop the queue. Any other error, such
-- as a full server's, goes through.
local function count(name, by)
  local got = redis.pcall('HINCRBY', P .. 'stats', name, by or 1)
  if type(got) == 'table' and got.err then
    if string.find(got.err, 'integer', 1, true) or string.find(got.err, 'overflow', 1, true) then
      call('HSET', P .. 'stats', name, by or 1)
    else
      error(got.err)
    end
  end
end
