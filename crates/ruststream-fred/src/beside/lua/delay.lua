-- Keeps a message until it is due. KEYS: delayed. ARGV: milliseconds, the packed message, the channel that wakes consumers.
local time = redis.call('TIME')
local due = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1]))
redis.call('ZADD', KEYS[1], due, ARGV[2])
redis.call('PUBLISH', ARGV[3], due)
return 1
