-- Removes a consumer that holds nothing.
-- KEYS: stream, wake. ARGV: group, consumer.
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[2], ARGV[1], ARGV[2])
return 1
