-- Wake a key that a pause held. Whoever starts the wake looks at the pauses again, so too much waking does no harm.
-- KEYS[1] state  KEYS[2] due  KEYS[3] parked  KEYS[4..6] as rq_enqueue
-- ARGV[1] key  ARGV[2] scope  ARGV[3] recheck_wake_after_ms  ARGV[4..9] as rq_enqueue
-- Returns 1 when the key was woken, 0 when that pause does not hold it any more.
-- include now.lua
-- include rq_enqueue.lua
local state, due, parked = KEYS[1], KEYS[2], KEYS[3]
local key, scope, recheck_wake_after_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
redis.call('ZREM', parked, scope .. ' ' .. key)
if redis.call('HGET', state, 'paused') ~= scope then return 0 end
redis.call('HDEL', state, 'paused')
redis.call('HSET', state, 'job', ARGV[4])
redis.call('ZADD', due, now_ms() + recheck_wake_after_ms, key)
rq_enqueue(4, 4)
return 1
