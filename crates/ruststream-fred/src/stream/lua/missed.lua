-- Hands out what a consumer holds and never saw, since the answer that brought it was lost.
-- KEYS: stream. ARGV: group, consumer, room, ids that it has in hand.
-- Answers: entries as {id, fields, delivery count, unfinished}; how many were deleted while they were pending.
local stream, group, consumer, room = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local in_hand = {}
for i = 4, #ARGV do in_hand[ARGV[i]] = true end
local entries, gone = {}, 0
for _, held in ipairs(redis.call('XPENDING', stream, group, '-', '+', #ARGV - 3 + room, consumer)) do
  local id, count = held[1], held[4]
  if not in_hand[id] and #entries < room then
    local claimed = redis.call('XCLAIM', stream, group, consumer, 0, id, 'RETRYCOUNT', count)
    if claimed[1] then
      entries[#entries + 1] = {id, claimed[1][2], count, 0}
    else
      gone = gone + 1
    end
  end
end
return {entries, gone}
