-- Part of finish: what becomes of a job that was claimed and has not started after all.

function settlers.unrun(id, r, due)
  if unwanted(r) then
    return settlers.cancelled(id, r, due)
  end
  if due > NOW then
    return back_to_queue(id, r)
  end
  expire(id, r, 'worker', retention)
  return 'expired'
end

function settlers.yielded(id, r, due)
  if unwanted(r) then
    return settlers.cancelled(id, r, due)
  end
  count('tied_away')
  settle(id, r, 'cancelled', keep_of(r, retention), 'tied')
  return 'cancelled'
end
