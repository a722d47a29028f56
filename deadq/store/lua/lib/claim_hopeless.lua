-- Part of claim: those that by the estimate cannot make it any more.

-- A slot that nothing feasible fills is idle, and may try one of these; the others are dropped.
local slots = fleet_slots()
for _, h in ipairs(hopeless) do
  local set, _, id, r = unpack(h)
  local alone = set == SUSPECTS or taken[1] and taken[1][1] == SUSPECTS
  local span = math.min(expected(r), r.deadline - NOW)
  if #taken < math.min(want, alone and 1 or want) and may_probe(id, slots, span) then
    r.probe = '1'
    taken[#taken + 1] = h
  else
    expire(id, r, 'unmeetable', retention)
  end
end
