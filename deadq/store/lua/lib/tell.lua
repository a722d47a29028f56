-- Messages to children, kept for a minute. Children with ids "<post>.<name>" share the list of
-- their post: one process listens there for all of them.

local function tell(child, message)
  local list = P .. 'ctl:' .. (string.match(child, '^([^.]+)%.') or child)
  call('RPUSH', list, message)
  call('PEXPIRE', list, 60000)
end
