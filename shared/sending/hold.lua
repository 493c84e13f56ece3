-- Let a chat or a bot wait, because its platform asked for it, or takes nothing from the bot. A hold never shortens one that is
-- there. A bot that is `refused` goes on with a single send, the probe, and stays refused until that was taken.
-- KEYS[1] budget
-- ARGV[1] hold_ms  ARGV[2] keep_ms, how long the budget is remembered after that  ARGV[3] is refused?
-- Returns until when it waits, in milliseconds since 1970.
-- include ../lane/now.lua
local budget, hold_ms, keep_ms, is_refused = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local now = now_ms()
local held_until = math.max(tonumber(redis.call('HGET', budget, 'held_until')) or 0, now + hold_ms)
redis.call('HSET', budget, 'held_until', held_until)
if is_refused then redis.call('HSET', budget, 'refused', 1) end
redis.call('PEXPIRE', budget, math.max(redis.call('PTTL', budget), held_until - now + keep_ms))
return held_until
