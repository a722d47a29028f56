-- Cancelling a record: at once while it waits; a running one is flagged and its owners told.
local function cancel(id, r, retention)
  if r.state == 'running' then
    if r.again then -- whoever came back for it has left too
      call('HDEL', P .. 'job:' .. id, 'again')
    end
    if not r.cancel then
      call('HSET', P .. 'job:' .. id, 'cancel', '1')
      tell(r.owner, 'cancel ' .. id .. ' ' .. r.fence)
      if r.owner2 then
        tell(r.owner2, 'cancel ' .. id .. ' ' .. r.fence2)
      end
    end
    return 'running'
  elseif r.state == 'ready' or r.state == 'suspect' or r.state == 'later' or r.state == 'strange' then
    if r.deadline <= NOW and (num(call('ZSCORE', P .. 'due', id)) or 0) <= NOW then
      expire(id, r, 'queue', retention)
      return 'expired'
    end
    count('finished:cancelled')
    settle(id, r, 'cancelled', keep_of(r, retention))
    return 'cancelled'
  end
  return r.state
end
