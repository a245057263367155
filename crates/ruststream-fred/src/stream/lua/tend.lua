-- What a subscription looks after, besides reading what is new: moves delayed messages that are due into the stream, hands out
-- retries that are due and entries whose holder is gone, removes dead consumers, trims.
-- KEYS: stream, due, delayed, state, wake.
-- ARGV: group, parked group, consumer, room, lease (ms), interval (ms), idle time of a dead consumer (ms), kind of retention,
-- its value, then ids of wake entries that were read.
-- Answers: entries as {id, fields, delivery count, unfinished}; milliseconds until something is due, or -1; how many entries
-- were deleted while they were pending; how many the group has yet to read, or -1 where the server cannot tell.
local stream, due, delayed, state, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group, parked, consumer = ARGV[1], ARGV[2], ARGV[3]
local room, lease, interval, dead_after = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local retention, bound = ARGV[8], tonumber(ARGV[9])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_text = string.format('%.0f', now)
local entries, gone = {}, 0

for i = 10, #ARGV do redis.call('XACK', wake, group, ARGV[i]) end

-- Names and values one after the other, as RESP2 has it.
local function to_map(list)
  local map = {}
  for i = 1, #list, 2 do map[list[i]] = list[i + 1] end
  return map
end

-- An id in the form in which texts compare as ids do.
local function padded(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return string.rep('0', 20 - #ms) .. ms .. '-' .. string.rep('0', 20 - #seq) .. seq
end

for _, packed in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', now_text, 'LIMIT', 0, 100)) do
  local fields = cmsgpack.unpack(packed)
  table.remove(fields, 1)
  redis.call('XADD', stream, '*', unpack(fields))
  redis.call('ZREM', delayed, packed)
end

-- A member is the padded id and the attempts counted so far.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now_text, 'LIMIT', 0, room)) do
  local ms, seq, count = string.match(member, '^0*(%d+)%-0*(%d+):(%d+)$')
  local id = ms .. '-' .. seq
  count = tonumber(count) + 1
  local claimed = redis.call('XCLAIM', stream, group, consumer, 0, id, 'FORCE', 'RETRYCOUNT', count)
  redis.call('XACK', stream, parked, id)
  redis.call('ZREM', due, member)
  if claimed[1] then
    entries[#entries + 1] = {id, claimed[1][2], count, 0}
  else
    gone = gone + 1
  end
end

local last = redis.call('HMGET', state, 'reclaimed', 'cursor', 'swept')
if now - tonumber(last[1] or 0) >= interval and #entries < room then
  redis.call('HSET', state, 'reclaimed', now_text)
  local pending = redis.call('XPENDING', stream, group)
  if pending[1] > 0 then
    local claimed = redis.call('XAUTOCLAIM', stream, group, consumer, lease, last[2] or '0-0', 'COUNT', room - #entries)
    redis.call('HSET', state, 'cursor', claimed[1])
    for _, entry in ipairs(claimed[2]) do
      local held = redis.call('XPENDING', stream, group, entry[1], entry[1], 1)
      entries[#entries + 1] = {entry[1], entry[2], held[1][4], 1}
    end
    gone = gone + #(claimed[3] or {})
  end
  if now - tonumber(last[3] or 0) >= dead_after then
    redis.call('HSET', state, 'swept', now_text)
    for _, key in ipairs({stream, wake}) do
      for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
        local other = to_map(info)
        -- What is pending of wakes is nothing to keep.
        if other.name ~= consumer and other.idle >= dead_after and (other.pending == 0 or key == wake) then
          redis.call('XGROUP', 'DELCONSUMER', key, group, other.name)
        end
      end
    end
  end
  if retention ~= 'all' then
    -- Nothing from here on has been acked by every group.
    local safe
    local readers = 0
    for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
      local other = to_map(info)
      local first
      if other.pending > 0 then
        first = redis.call('XPENDING', stream, other.name)[2]
      end
      if string.sub(other.name, -8) ~= ':retries' then
        readers = readers + 1
        if not first then
          local ms, seq = string.match(other['last-delivered-id'], '^(%d+)-(%d+)$')
          first = #seq < 15 and ms .. '-' .. string.format('%.0f', tonumber(seq) + 1) or other['last-delivered-id']
        end
      end
      if first and (not safe or padded(first) < padded(safe)) then safe = first end
    end
    if readers > 0 then
      if retention == 'acked' then
        redis.call('XTRIM', stream, 'MINID', safe)
      elseif retention == 'length' then
        local excess = redis.call('XLEN', stream) - bound
        if excess > 0 then redis.call('XTRIM', stream, 'MINID', '~', safe, 'LIMIT', excess) end
      else
        local oldest = string.format('%.0f', math.max(now - bound, 0)) .. '-0'
        if padded(safe) < padded(oldest) then oldest = safe end
        redis.call('XTRIM', stream, 'MINID', oldest)
      end
    end
  end
end

local next_due = -1
for _, key in ipairs({due, delayed}) do
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if head[2] then
    local wait = math.max(tonumber(head[2]) - now, 0)
    if next_due < 0 or wait < next_due then next_due = wait end
  end
end
local lag = -1
for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local own = to_map(info)
  if own.name == group then lag = own.lag or -1 end
end
return {entries, next_due, gone, lag}
