--! use: base passing
-- lend: a process tells what it has done under a budget, and borrows tokens for its next retries. A
-- loan counts as spent until it is told of or runs out, so that the fleet's bound holds meanwhile.
--
-- ARGV 1 now   2 holder   3 number of this call   4 rule, or '' to leave it as it is   5 tokens wanted
--      6 loan's length ms   7.. 'f' (first attempts) or 's' (tokens spent), how long ago (ms; may be to come), how many
-- reply: now, tokens lent, tokens left to the others
--
-- The same number again gets the same loan, and counts nothing twice.

--! use: budget
local holder, number, wanted, length = ARGV[2], ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6])
local field = 'o' .. holder
local held = redis.pcall('HGET', BUDGET, field)
if type(held) == 'table' then
  call('DEL', BUDGET) -- not what a release of deadq wrote: start over
end
if ARGV[4] ~= '' and redis.pcall('HGET', BUDGET, 'rule') ~= ARGV[4] then
  redis.pcall('HSET', BUDGET, 'rule', ARGV[4])
end
local tokens, _, last = string.match(type(held) == 'string' and held or '', '^(%d+) (%d+) (%d+)$')
if last == number then
  return { NOW, num(tokens) or 0, math.floor((budget_left())) }
end
for i = 7, #ARGV, 3 do
  budget_note(ARGV[i], tonumber(ARGV[i + 2]), NOW - tonumber(ARGV[i + 1]))
end
local left = math.floor(math.max(0, (budget_left(holder))))
local lent = math.min(wanted, left > 1 and math.ceil(left / 2) or left) -- others may be about to ask
call('HSET', BUDGET, field, str(lent) .. ' ' .. str(NOW + length) .. ' ' .. number)
if ARGV[4] ~= '' then -- a queue's own stays: its workers have set its rule, and say it only once
  call('PEXPIRE', BUDGET, str(LONGEST + length))
end
return { NOW, lent, left - lent }
