--! use: base who_runs
-- show: all that is known of one job but its arguments and its result. Changes nothing.
-- ARGV 1 now   2 id   3 '1': also its arguments
-- reply: now, flat fields of its record, latest attached deadline or '', TTL ms, host and process that
--   run it (of both runs of a job that runs twice), bytes of its arguments, bytes of its result, the encoded error of one that failed, its arguments or ''

local J = P .. 'job:' .. ARGV[2]
local flat = redis.pcall('HGETALL', J)
if flat.err then
  flat = { 'state', 'malformed' }
end
local r, kept = {}, {}
for i = 1, #flat, 2 do
  r[flat[i]] = flat[i + 1]
  if flat[i] ~= 'data' and flat[i] ~= 'data2' and flat[i] ~= 'data3' and flat[i] ~= 'result' then
    local unit = string.sub(flat[i], 1, 2) == 'u:' and string.match(flat[i + 1], '^%l+ %d+ %d+ %d+')
    kept[#kept + 1], kept[#kept + 2] = flat[i], unit or flat[i + 1]
  end
end

local function size(inline, key)
  local n = inline ~= '' and #inline or redis.pcall('STRLEN', key)
  return type(n) == 'number' and n or 0
end

local data = (r.data or '') .. (r.data2 or '') .. (r.data3 or '')
local payload = ARGV[3] == '1' and (data ~= '' and data or redis.pcall('GET', P .. 'data:' .. ARGV[2]))

local failed = r.state == 'failed' or r.state == 'exhausted' or r.state == 'crashed'
local blob = failed and (r.result or redis.pcall('GET', P .. 'result:' .. ARGV[2]))
return {
  NOW,
  kept,
  call('ZSCORE', P .. 'due', ARGV[2]) or '',
  call('PTTL', J),
  who_runs(r.owner, r.owner2),
  size(data, P .. 'data:' .. ARGV[2]),
  size(r.result or '', P .. 'result:' .. ARGV[2]),
  type(blob) == 'string' and blob or '',
  type(payload) == 'string' and payload or '',
}
