-- Deletes all dead letters. KEYS: dead letters. ARGV: what they are. Answers how many there were.
local count = redis.call(ARGV[1] == 'stream' and 'XLEN' or 'LLEN', KEYS[1])
redis.call('DEL', KEYS[1])
return count
