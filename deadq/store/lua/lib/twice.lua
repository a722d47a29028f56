-- Jobs that run twice: the second run stands in owner2, fence2, claim2 and began2 of the record. Each
-- run may come to its end alone; `left` is the fence of one that did.

-- Which of its runs a child reports of: 1 or 2; nil: none.
local function run_of(r, child, fence)
  if r.owner == child and r.fence == fence then
    return 1
  elseif r.owner2 == child and r.fence2 == fence then
    return 2
  end
end

-- One run is over and decides nothing: the other is the only one from now on.
local function drop_run(id, r, which)
  local J, left = P .. 'job:' .. id, which == 1 and r.fence or r.fence2
  call('SREM', P .. 'run:' .. (which == 1 and r.owner or r.owner2), id)
  call('ZREM', P .. 'twice', id)
  if which == 1 then
    r.owner, r.fence, r.claim, r.began = r.owner2, r.fence2, r.claim2, r.began2
    call('HSET', J, 'owner', r.owner, 'fence', r.fence, 'claim', r.claim, 'began', r.began)
  end
  r.owner2, r.fence2, r.claim2, r.began2 = nil, nil, nil, nil
  call('HDEL', J, 'owner2', 'fence2', 'claim2', 'began2')
  call('HSET', J, 'left', left)
end

-- Whether somebody else goes on with a job that this child does not run any more.
local function other_goes_on(id, r, child)
  if r.owner2 then
    drop_run(id, r, r.owner == child and 1 or 2)
    return true
  end
  return false
end
