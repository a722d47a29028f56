--! use: base passing
-- pause: refuse new submits ('1'), or take them again ('').
-- ARGV 1 now   2 '1' or ''
-- reply: now

if ARGV[2] == '1' then
  call('HSET', P .. 'fleet', 'paused', '1')
else
  call('HDEL', P .. 'fleet', 'paused')
end
return { NOW }
