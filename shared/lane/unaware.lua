-- Whether a key is under a lease that is none of those that wait for a session.
-- KEYS[1] state
-- ARGV tokens
-- Returns 1 when it is, 0 when nobody holds the key, or one of those.
-- include now.lua
local state = KEYS[1]
local held = redis.call('HMGET', state, 'token', 'until')
if not held[1] or (tonumber(held[2]) or 0) <= now_ms() then return 0 end
for _, token in ipairs(ARGV) do
  if token == held[1] then return 0 end
end
return 1
