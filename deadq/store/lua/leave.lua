--! use: base passing tell record waiting ending back cancel
-- leave: give up tokens; the last live one leaving cancels its job.
-- ARGV 1 now   2 retention ms   then for each: id, token
-- reply: now, then for each: 'awaited' when others still wait, else as for cancel

local reply = { NOW }
for i = 3, #ARGV, 2 do
  local id, token = ARGV[i], ARGV[i + 1]
  local r, why = load(id)
  local answer
  if not r or why == 'absent' then
    answer = 'gone'
  elseif not r[token] then -- left before, or never held: nothing hangs on this call
    answer = awaited(r) and 'awaited' or r.state
  else
    call('HDEL', P .. 'job:' .. id, token)
    r[token] = nil
    answer = awaited(r) and 'awaited' or cancel(id, r, tonumber(ARGV[2]))
  end
  reply[#reply + 1] = answer
end
return reply
