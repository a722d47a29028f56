-- Part of admit: a job from `dead` once more, as it came but for its deadline and its token.

-- A verdict; or nil and the dead record, once the submit has been filled in from it; or nothing
-- where somebody else has replayed the job: then this is a submit of the same.
local function replayed(i, id)
  --! use: record
  flush()
  local r = load(id) or {}
  if r.replay and r.replay == ARGV[i + 8] then -- the same call once more: its reply was lost
    return 'admitted', num(ARGV[i + 4])
  end
  local dead = r.finished and call('ZSCORE', P .. 'dead', id)
  local payload = dead and payload_of(id, r) or ''
  local open = OPEN[r.state] and (r.state == 'running' or (num(call('ZSCORE', DUE, id)) or 0) > NOW)
  if not (r.task and r.fingerprint) or payload == '' and not (open and r.replay) then
    return refuse('not_dead')
  end
  ARGV[i + 1], ARGV[i + 2], ARGV[i + 3] = r.key or '', r.fingerprint, r.task
  ARGV[i + 7], ARGV[i + 9] = r.retries or '0', payload
  ARGV[i + 10] = r.once or ''
  ARGV[i + 11] = string.gsub(r.marks or '', '@.*', '') -- but for when it was submitted first
  r.replayed = ARGV[i + 8]
  return nil, dead and r or nil
end
