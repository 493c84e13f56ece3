-- Which pause holds a key, the narrowest if several do, and how a key is set aside for it. `pauses` is a hash of scopes and mostly absent.
-- A scope is `all`, `lane:<lane>`, `platform:<platform>`, a chat (the text of its destination) or a session key. Control
-- messages are held by `lane:control` alone, so that /stop gets through whatever else is paused.
local function pause_of(pauses, lane, key)
  if redis.call('TYPE', pauses).ok ~= 'hash' then return nil end
  local scopes = {'lane:' .. lane}
  if lane ~= 'control' then
    local bot, chat = string.match(key, '^to:([^:]*):([^:]*)$')
    if not bot then bot, chat = string.match(key, '^agent:[^:]*:([^:]*):[^:]*:([^:]*)') end
    scopes = {key, 'lane:' .. lane, 'all'}
    if bot then scopes = {key, 'to:' .. bot .. ':' .. chat, 'platform:' .. string.match(bot, '^[^@]*'), scopes[2], 'all'} end
  end
  local found = redis.call('HMGET', pauses, unpack(scopes))
  for i, scope in ipairs(scopes) do
    if found[i] then return scope end
  end
  return nil
end
-- The key keeps its mail and has no lease, no wake and no time at which anybody looks at it, until unpark.lua wakes it.
local function park(parked, due, state, scope, key)
  redis.call('HDEL', state, 'token', 'until', 'since', 'job', 'outage', 'waited')
  redis.call('HSET', state, 'paused', scope)
  redis.call('ZREM', due, key)
  redis.call('ZADD', parked, 0, scope .. ' ' .. key)
end
