-- Settles messages otherwise than by an ack.
-- KEYS: due, held by this consumer, dead letters. ARGV: the channel that wakes consumers, then for each message: what, its name,
-- number, more, whether its value is given, the value.
-- What: retry after so many ms; return with so many attempts counted; release; dead, with the headers that say why in `more`.
-- Answers: how many this consumer does not hold any more; ms until one is due, or -1.
local due, held, dead = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stale = 0
local earliest
local MAGIC = '\0RS1'

local function with_headers(value, more)
  local block, payload = '', value
  if string.sub(value, 1, 4) == MAGIC and #value >= 8 then
    local length = struct.unpack('<I4', value, 5)
    block, payload = string.sub(value, 9, 8 + length), string.sub(value, 9 + length)
  end
  block = block .. more
  return MAGIC .. struct.pack('<I4', #block) .. block .. payload
end

for i = 2, #ARGV, 6 do
  local what, name, number, more, given, value = unpack(ARGV, i, i + 5)
  number = tonumber(number)
  if given == '0' then
    value = redis.call('HGET', held, name)
    if value then redis.call('HDEL', held, name) end
  end
  if not value then
    stale = stale + 1
  elseif what == 'dead' then
    redis.call('LPUSH', dead, with_headers(value, more))
  else
    local order, attempts = string.match(name, '^(%d+)-(%d+)$')
    local at = 0
    attempts = tonumber(attempts)
    if what == 'retry' then
      at = now + number
    elseif what == 'return' then
      attempts = number
    else
      attempts = attempts - 1
    end
    redis.call('ZADD', due, string.format('%.0f', at), string.format('%016.0f:%.0f:0:', tonumber(order), attempts) .. value)
    if not earliest or at < earliest then earliest = at end
  end
end
if not earliest then return {stale, -1} end
redis.call('PUBLISH', ARGV[1], string.format('%.0f', earliest))
return {stale, math.max(earliest - now, 0)}
