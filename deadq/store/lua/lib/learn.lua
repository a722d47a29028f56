-- Taking in service times; `lib/service.lua` reads them.
local LOG_BASE = math.log(1.1) -- bucket i holds (1.1^(i-1), 1.1^i] microseconds
local KEEP = 0.995 -- weight left of a sample after each newer one: about 200 samples count

local function bucket_of(us)
  return math.max(0, math.ceil(math.log(math.max(1, us)) / LOG_BASE - 1e-9))
end

local function middle_ms(i)
  return 1.1 ^ (i - 0.5) / 1000
end

-- Add one run with weight w. One that was cut short lasted at least this long: its weight goes to
-- the longer ones in their present shares (Efron 1967, redistribution to the right). Returns ms.
local function add_sample(weights, us, cut, w)
  local at, ms = bucket_of(us), us / 1000
  if cut then
    local above, sum = 0, 0
    for i, v in pairs(weights) do
      if i > at then
        above, sum = above + v, sum + v * middle_ms(i)
      end
    end
    if above > 0.01 * w then
      for i, v in pairs(weights) do
        if i > at then
          weights[i] = v + w * v / above
        end
      end
      return math.max(ms, sum / above)
    end
  end
  weights[at] = (weights[at] or 0) + w
  return ms
end

-- The upper edges of the buckets in which the given shares of all weight are reached, ms.
local function quantiles_ms(weights, shares)
  local order, total, found = {}, 0, {}
  for i, w in pairs(weights) do
    order[#order + 1] = i
    total = total + w
  end
  table.sort(order)
  local seen, k = 0, 1
  for _, i in ipairs(order) do
    seen = seen + weights[i]
    while shares[k] and seen >= shares[k] * total do
      found[k] = 1.1 ^ i / 1000
      k = k + 1
    end
  end
  return found[1] or 0, found[2] or found[1] or 0, found[3] or found[2] or found[1] or 0
end

local function recall(task)
  local weights = {}
  for i, w in string.gmatch(call('HGET', P .. 'service', 'h:' .. task) or '', '(%d+):(%S+)') do
    i, w = num(i), num(w)
    if i and w and i < 400 and w > 0 then
      weights[i] = w
    end
  end
  return weights
end

local function remember(task, weights, scale)
  local text = {}
  for i, w in pairs(weights) do
    w = w / scale
    if w > 0.001 then
      text[#text + 1] = string.format('%d:%.4g', i, w)
    end
  end
  call('HSET', P .. 'service', 'h:' .. task, table.concat(text, ' '), 's:' .. task,
    string.format('%.6g %.6g %.6g', quantiles_ms(weights, { 0.5, 0.95, 0.99 })) .. ' ' .. str(NOW))
end

-- samples: array of {us, cut, probe}, all of one task.
local function learn(task, samples)
  local weights, service = recall(task), P .. 'service'
  local n, sum, squares = string.match(call('HGET', service, 'all') or '', '^(%S+) (%S+) (%S+)')
  n, sum, squares = num(n) or 0, num(sum) or 0, num(squares) or 0
  local scale = 1 -- weights grow instead of decaying, and are scaled down once at the end
  for _, s in ipairs(samples) do
    local keep = KEEP
    -- A probe that is far quicker than what is remembered: the slow spell is over, forget fast.
    if s[3] and not s[2] and s[1] / 1000 < quantiles_ms(weights, { 0.5 }) / 2 then
      keep = 0.25
    end
    scale = scale / keep
    local ms = add_sample(weights, s[1], s[2], scale)
    n, sum, squares = n * keep + 1, sum * keep + ms, squares * keep + ms * ms
  end
  remember(task, weights, scale)
  call('HSET', service, 'all', string.format('%.8g %.8g %.8g %.0f', n, sum, squares, NOW))
end

-- One run of a unit; it is part of a job's run, so the sums over the queue leave it out.
local function learn_unit(name, us)
  -- names may be made up as jobs go: a bounded number is kept
  if call('HEXISTS', P .. 'service', 's:' .. name) == 0 and call('HLEN', P .. 'service') >= 2000 then
    return
  end
  local weights = recall(name)
  add_sample(weights, us, false, 1 / KEEP)
  remember(name, weights, 1 / KEEP)
end
