-- Runs what handlers queued, together with the acks of their messages.
-- KEYS: the stream, the hash of what a consumer of a list holds, or the channel. ARGV: which of them; whether it is asked of each message
-- of a stream if its consumer still holds it; group; consumer; then for each message: its id or name, how many commands, and for
-- each command: how many words, the words.
-- Answers: how many messages were not held any more, whose commands did not run; what failed of the others.
local place, kind, asks, group, consumer = KEYS[1], ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]
local stale, errors, acked = 0, {}, {}

local function is_held(name)
  if kind == 'stream' and asks then
    local owned = redis.call('XPENDING', place, group, name, name, 1)[1]
    return owned and owned[2] == consumer
  end
  return kind ~= 'list' or redis.call('HEXISTS', place, name) == 1
end

-- What a server says that takes no writes now. It says so before the first write of a script alone: nothing was done of this message,
-- and nothing that counts of those before it.
local refusals = {OOM = true, MISCONF = true, NOREPLICAS = true, READONLY = true}

local i = 5
while i <= #ARGV do
  local name, count = ARGV[i], tonumber(ARGV[i + 1])
  local held = is_held(name)
  i = i + 2
  for _ = 1, count do
    local words = tonumber(ARGV[i])
    if held then
      local answer = redis.pcall(unpack(ARGV, i + 1, i + words))
      if type(answer) == 'table' and answer.err then
        if refusals[string.match(answer.err, '^%u+')] then return answer end
        errors[#errors + 1] = answer.err
      end
    end
    i = i + words + 1
  end
  if not held then
    stale = stale + 1
  elseif kind == 'list' then
    redis.call('HDEL', place, name)
  elseif kind == 'stream' then
    acked[#acked + 1] = name
  end
end
for first = 1, #acked, 1000 do
  local part = {unpack(acked, first, math.min(first + 999, #acked))}
  local count = redis.call('XACK', place, group, unpack(part))
  if not asks then stale = stale + #part - count end
end
return {stale, errors}
