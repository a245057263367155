-- Removes a consumer that holds nothing. KEYS: consumers, held by it. ARGV: consumer.
if redis.call('HLEN', KEYS[2]) == 0 then redis.call('ZREM', KEYS[1], ARGV[1]) end
return 1
