-- Moves dead letters back into their stream, without what made them dead letters.
-- KEYS: dead letters, stream. ARGV: first id, last id, how many at most. Answers the ids that were moved.
local moved = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])) do
  local fields = {}
  for i = 1, #entry[2], 2 do
    if string.sub(entry[2][i], 1, 12) ~= 'dead-letter-' then
      fields[#fields + 1] = entry[2][i]
      fields[#fields + 1] = entry[2][i + 1]
    end
  end
  redis.call('XADD', KEYS[2], '*', unpack(fields))
  redis.call('XDEL', KEYS[1], entry[1])
  moved[#moved + 1] = entry[1]
end
return moved
