-- Publishes what takes more than one command: delayed messages, those that are stored once, and several all together or not at all.
-- KEYS: the destination of the first. ARGV: for each message: the key that marks its id or ``, for how many ms; how it goes; the type of the
-- key it goes to; how many words; the words.
-- How: now, the words being a command; entry or item, which are kept until they are due, the words being the milliseconds, the sorted set,
-- the packed message, and what wakes consumers, a stream for entries and a channel for items.
-- The second word is the key in each case. Answers: how many were there already.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local messages = {}

-- What would fail half way is found out before anything is done.
local i = 1
while i <= #ARGV do
  local count = tonumber(ARGV[i + 4])
  local one = {mark = ARGV[i], window = ARGV[i + 1], how = ARGV[i + 2], words = {unpack(ARGV, i + 5, i + 4 + count)}}
  local wanted, key = ARGV[i + 3], one.words[2]
  if wanted ~= '' then
    local there = redis.call('TYPE', key).ok
    if there ~= 'none' and there ~= wanted then
      return redis.error_reply('WRONGTYPE ' .. key .. ' holds a ' .. there .. ', and the message goes to a ' .. wanted)
    end
  end
  messages[#messages + 1] = one
  i = i + 5 + count
end

local known = 0
for _, one in ipairs(messages) do
  if one.mark ~= '' and not redis.call('SET', one.mark, '1', 'NX', 'PX', one.window) then
    known = known + 1
  elseif one.how == 'now' then
    redis.call(unpack(one.words))
  else
    local after, delayed, packed, wake = unpack(one.words)
    local due = now + tonumber(after)
    local due_text = string.format('%.0f', due)
    local head = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
    redis.call('ZADD', delayed, due_text, packed)
    if one.how == 'item' then
      redis.call('PUBLISH', wake, due_text)
    elseif not head[2] or tonumber(head[2]) > due then
      redis.call('XADD', wake, 'MAXLEN', 16, '*', 'due', due_text)
    end
  end
end
return known
