-- Settles entries that their consumer still holds.
-- KEYS: stream, due, dead letters, wake.
-- ARGV: group, parked group, consumer, then for each entry: what, id, number, how many fields, the fields.
-- What: ack; retry after so many ms; return with so many attempts counted; release; dead.
-- Answers: how many belong to another consumer or to none; how many were deleted from the stream; ms until one is due, or -1.
local stream, due, dead, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, parked, consumer = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stale, gone = 0, 0
local earliest

-- Keeps an entry back, its place in the stream its place among those that are due at once.
local function park(id, at, count)
  local claimed = redis.call('XCLAIM', stream, parked, 'parked', 0, id, 'FORCE', 'JUSTID')
  if not claimed[1] then
    gone = gone + 1
    return
  end
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  local member = string.rep('0', 20 - #ms) .. ms .. '-' .. string.rep('0', 20 - #seq) .. seq .. ':' .. string.format('%.0f', count)
  redis.call('ZADD', due, string.format('%.0f', at), member)
  if not earliest or at < earliest then earliest = at end
end

local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
local i = 4
while i <= #ARGV do
  local what, id, number, fields = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local first = i + 4
  i = first + fields
  local held = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if not held or held[2] ~= consumer then
    stale = stale + 1
  else
    local count = held[4]
    if what == 'retry' then
      park(id, now + number, count)
    elseif what == 'return' then
      park(id, 0, number)
    elseif what == 'release' then
      park(id, 0, count - 1)
    elseif what == 'dead' then
      local entry = redis.call('XRANGE', stream, id, id)[1]
      if entry then
        local copy = entry[2]
        for j = first, i - 1 do copy[#copy + 1] = ARGV[j] end
        redis.call('XADD', dead, '*', unpack(copy))
      else
        gone = gone + 1
      end
    end
    redis.call('XACK', stream, group, id)
  end
end
if not earliest then return {stale, gone, -1} end
if not head[2] or tonumber(head[2]) > earliest then
  redis.call('XADD', wake, 'MAXLEN', 16, '*', 'due', string.format('%.0f', earliest))
end
return {stale, gone, math.max(earliest - now, 0)}
