-- Moves one dead letter back into its list. KEYS: dead letters, list. ARGV: the letter, the message that it becomes.
-- Answers 1 where it was there.
if redis.call('LREM', KEYS[1], -1, ARGV[1]) == 0 then return 0 end
redis.call('LPUSH', KEYS[2], ARGV[2])
return 1
