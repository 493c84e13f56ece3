-- Take a key from whoever holds it, or out of its delay, and wake it at once: an operator's doing. The mail stays.
-- The attempt of the holder is not counted: it did not fail, it was cut short.
-- KEYS[1] state  KEYS[2] due  KEYS[3..5] as rq_enqueue
-- ARGV[1] key  ARGV[2] recheck_wake_after_ms  ARGV[3..8] as rq_enqueue
-- Returns 0 when the key was idle and still is, else woken: 1 from awake, 2 from a delay, 3 from a lease.
-- include now.lua
-- include rq_enqueue.lua
local state, due = KEYS[1], KEYS[2]
local key, recheck_wake_after_ms = ARGV[1], tonumber(ARGV[2])
if redis.call('EXISTS', state) == 0 then return 0 end
local held = redis.call('HMGET', state, 'token', 'until', 'attempts')
local was = held[1] and 3 or held[2] and 2 or 1
if held[1] and (tonumber(held[3]) or 0) > 0 then redis.call('HINCRBY', state, 'attempts', -1) end
redis.call('HDEL', state, 'token', 'until', 'since', 'hears')
redis.call('HSET', state, 'job', ARGV[3])
redis.call('ZADD', due, now_ms() + recheck_wake_after_ms, key)
rq_enqueue(3, 3)
return was
