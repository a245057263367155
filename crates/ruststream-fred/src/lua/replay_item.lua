-- Puts one dead letter of a list or channel where its retries wait, so that its subscriptions get it and no one else.
-- KEYS: dead letters, due, numbers. ARGV: the letter, the message that it becomes, attempts made, the channel that wakes consumers.
-- Answers 1 where it was there.
if redis.call('LREM', KEYS[1], -1, ARGV[1]) == 0 then return 0 end
local number = redis.call('INCR', KEYS[3])
redis.call('ZADD', KEYS[2], 0, string.format('%016.0f:%.0f:0:', number, tonumber(ARGV[3])) .. ARGV[2])
redis.call('PUBLISH', ARGV[4], '0')
return 1
