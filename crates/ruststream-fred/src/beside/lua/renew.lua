-- Says that a consumer lives.
-- KEYS: consumers, held by it. ARGV: consumer, names. Answers the positions, counted from 0, of those that it does not hold any more.
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)), ARGV[1])
local lost = {}
for i = 2, #ARGV do
  if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 0 then lost[#lost + 1] = i - 2 end
end
return lost
