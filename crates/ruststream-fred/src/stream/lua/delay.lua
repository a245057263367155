-- Keeps a message until it is due.
-- KEYS: delayed, wake. ARGV: milliseconds, the packed message.
local time = redis.call('TIME')
local due = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1])
local head = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
redis.call('ZADD', KEYS[1], string.format('%.0f', due), ARGV[2])
if not head[2] or tonumber(head[2]) > due then
  redis.call('XADD', KEYS[2], 'MAXLEN', 16, '*', 'due', string.format('%.0f', due))
end
return 1
