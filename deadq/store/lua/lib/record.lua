-- Records: `job:<id>` as a table, and its name among the waiting.

-- The record as a table, with `units` and `tokens` as lists of the names of such fields; an
-- empty one when absent; nil and a reason when it is no record.
local function load(id)
  local flat = redis.pcall('HGETALL', P .. 'job:' .. id)
  if flat.err then
    return nil, 'wrong type'
  end
  local r, byte, units, tokens = {}, string.byte, {}, {}
  for i = 1, #flat, 2 do
    local f = flat[i]
    r[f] = flat[i + 1]
    if byte(f, 2) == 58 then -- 'u:<unit>' or 'w:<token>'
      local list = byte(f, 1) == 117 and units or tokens
      list[#list + 1] = f
    end
  end
  r.units, r.tokens = units, tokens
  if r.state == nil then
    return r, 'absent'
  end
  r.deadline, r.estimate, r.born = num(r.deadline), num(r.estimate or 0), num(r.born)
  r.seq, r.version = num(r.seq), num(r.version)
  if not (r.deadline and r.estimate and r.version) or not (r.finished or r.born and r.seq) then
    return nil, 'bad number'
  end
  return r
end

-- Members of `ready` and `suspects` begin with the arrival number, so that equal scores are first come first served.
local function member(id, seq)
  return string.format('%010x:', seq) .. id
end

local function id_of(m)
  return string.byte(m, 11) == 58 and string.sub(m, 12) or m
end

-- The encoded arguments: in the record when small, else in a string of their own.
local function payload_of(id, r)
  if r.data then
    return r.data .. (r.data2 or '') .. (r.data3 or '')
  end
  local v = redis.pcall('GET', P .. 'data:' .. id)
  return type(v) == 'string' and v or '' -- empty: the worker says so, and fails this job alone
end

local function forget_payload(id, r)
  if r.data then
    call('HDEL', P .. 'job:' .. id, 'data', 'data2', 'data3')
  else
    call('DEL', P .. 'data:' .. id)
  end
end
