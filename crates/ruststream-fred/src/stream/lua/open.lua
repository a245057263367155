-- Makes the groups of a subscription where they are not there.
-- KEYS: stream, wake. ARGV: group, parked group, where a new group begins, what the subscription knows: `` at its start, else the
-- last entry that it need not see again, after the group was lost.
-- Answers where the group stands.
local stream, wake = KEYS[1], KEYS[2]
local group, parked, start, known = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local function padded(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return string.rep('0', 20 - #ms) .. ms .. '-' .. string.rep('0', 20 - #seq) .. seq
end

local function field(list, name)
  for i = 1, #list, 2 do
    if list[i] == name then return list[i + 1] end
  end
end

local function position()
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    if field(info, 'name') == group then return field(info, 'last-delivered-id') end
  end
end

if known ~= '' then
  start = known
  if redis.call('EXISTS', stream) == 0 then
    start = '0'
  elseif padded(field(redis.call('XINFO', 'STREAM', stream), 'last-generated-id')) < padded(known) then
    -- Another stream under the same name.
    start = '0'
  end
end
local there = redis.call('EXISTS', stream) == 1 and position()
if not there then
  redis.call('XGROUP', 'CREATE', stream, group, start, 'MKSTREAM')
elseif known ~= '' and padded(there) > padded(start == '0' and '0-0' or start) then
  -- Another consumer made it, and has seen more than this one.
  redis.call('XGROUP', 'SETID', stream, group, start)
end
redis.pcall('XGROUP', 'CREATE', stream, parked, '$', 'MKSTREAM')
redis.pcall('XGROUP', 'CREATE', wake, group, '$', 'MKSTREAM')
return position()
