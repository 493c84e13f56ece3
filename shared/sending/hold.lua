-- Let a chat or a bot wait, because its platform asked for it. A hold never shortens one that is there.
-- KEYS[1] budget
-- ARGV[1] hold_ms  ARGV[2] keep_ms, how long the budget is remembered after that
-- Returns until when it waits, in milliseconds since 1970.
-- include ../lane/now.lua
local budget, hold_ms, keep_ms = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local now = now_ms()
local held_until = math.max(tonumber(redis.call('HGET', budget, 'held_until')) or 0, now + hold_ms)
redis.call('HSET', budget, 'held_until', held_until)
redis.call('PEXPIRE', budget, math.max(redis.call('PTTL', budget), held_until - now + keep_ms))
return held_until
