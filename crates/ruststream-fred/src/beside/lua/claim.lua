-- Hands out what is due and what waits in a list; moves delayed messages that are due to where they go.
-- KEYS: list (or channel), due, delayed, numbers, consumers, held by this consumer.
-- ARGV: consumer, room, lease (ms), what it is: reliable, plain, channel or shard; the beginning of the keys of what consumers hold.
-- Answers: milliseconds until something is due, or -1; names and values, one after the other, a name being a number and the
-- attempt; names of those whose holder is gone.
local list, due, delayed, numbers, consumers, held = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local consumer, room, lease, kind, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_text = string.format('%.0f', now)
local entries, orphans = {}, {}

-- A message that is due: its value stands behind a number of its own.
for _, packed in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', now_text, 'LIMIT', 0, 100)) do
  local value = string.sub(packed, 17)
  if kind == 'channel' then
    redis.call('PUBLISH', list, value)
  elseif kind == 'shard' then
    redis.call('SPUBLISH', list, value)
  else
    redis.call('LPUSH', list, value)
  end
  redis.call('ZREM', delayed, packed)
end

if kind == 'reliable' then
  redis.call('ZADD', consumers, now_text, consumer)
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', consumers, '-inf', string.format('%.0f', now - lease), 'LIMIT', 0, 8)) do
    local place = prefix .. gone
    local all = redis.call('HGETALL', place)
    for i = 1, #all, 2 do
      local number, attempts = string.match(all[i], '^(%d+)-(%d+)$')
      redis.call('ZADD', due, 0, string.format('%016.0f:%s:1:', tonumber(number), attempts) .. all[i + 1])
    end
    redis.call('DEL', place)
    redis.call('ZREM', consumers, gone)
  end
end

-- A member: its number, the attempts made so far, whether its holder went away, the value.
local kept = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now_text, 'LIMIT', 0, room)) do
  local number, attempts, orphaned, value = string.match(member, '^0*(%d+):(%d+):(%d):(.*)$')
  local name = number .. '-' .. string.format('%.0f', tonumber(attempts) + 1)
  redis.call('ZREM', due, member)
  entries[#entries + 1] = name
  entries[#entries + 1] = value
  if orphaned == '1' then orphans[#orphans + 1] = name end
end

local left = room - #entries / 2
if left > 0 and (kind == 'reliable' or kind == 'plain') then
  local values = redis.call('RPOP', list, left)
  if values then
    local number = redis.call('INCRBY', numbers, #values) - #values
    for i, value in ipairs(values) do
      entries[#entries + 1] = string.format('%.0f-1', number + i)
      entries[#entries + 1] = value
    end
  end
end
if kind == 'reliable' then
  for i = 1, #entries, 2000 do
    redis.call('HSET', held, unpack(entries, i, math.min(i + 1999, #entries)))
  end
end

local next_due = -1
for _, key in ipairs({due, delayed}) do
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if head[2] then
    local wait = math.max(tonumber(head[2]) - now, 0)
    if next_due < 0 or wait < next_due then next_due = wait end
  end
end
return {next_due, entries, orphans}
