-- Resets the idle time of entries that their consumer still holds.
-- KEYS: stream. ARGV: group, consumer, ids.
-- Answers the positions, counted from 0, of the ids that it does not hold any more.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local lost, held = {}, {}
for i = 3, #ARGV do
  local owned = redis.call('XPENDING', stream, group, ARGV[i], ARGV[i], 1)[1]
  if owned and owned[2] == consumer then
    held[#held + 1] = ARGV[i]
  else
    lost[#lost + 1] = i - 3
  end
end
for i = 1, #held, 500 do
  local part = {unpack(held, i, math.min(i + 499, #held))}
  part[#part + 1] = 'JUSTID'
  redis.call('XCLAIM', stream, group, consumer, 0, unpack(part))
end
return lost
