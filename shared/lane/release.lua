-- Give a key back with its mail untouched: awake at once, or delayed. The job ends.
-- KEYS[1] state  KEYS[2] due  KEYS[3..9] as rq_finish  KEYS[10..12] as rq_enqueue
-- ARGV[1] key  ARGV[2] token  ARGV[3] delay_ms, 0 = now  ARGV[4] attempt  ARGV[5] recheck_wake_after_ms
-- ARGV[6..12] as rq_finish  ARGV[13..18] as rq_enqueue
-- Attempt: 1 = it failed, 0 = it does not count, w = nor does it, because its provider is away (since when is kept in
-- `outage`), + = none was begun and it failed, - = none was begun.
-- Returns 1 when given back, 0 when the lease is another's.
-- include now.lua
-- include rq_enqueue.lua
-- include rq_finish.lua
local state, due = KEYS[1], KEYS[2]
local key, token, delay_ms, attempt = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local recheck_wake_after_ms, job_id = tonumber(ARGV[5]), ARGV[13]
rq_finish(3, 6)
if redis.call('HGET', state, 'token') ~= token then return 0 end
redis.call('HDEL', state, 'token', 'until', 'since', 'hears')
if attempt == '+' then redis.call('HINCRBY', state, 'attempts', 1) end
if attempt == '1' or attempt == '+' then redis.call('HINCRBY', state, 'failed', 1) end
if attempt == '0' or attempt == 'w' then redis.call('HINCRBY', state, 'attempts', -1) end
if attempt == 'w' then redis.call('HSETNX', state, 'outage', now_ms()) end
if delay_ms > 0 then
  redis.call('HSET', state, 'until', now_ms() + delay_ms)
  redis.call('HDEL', state, 'job')
  redis.call('ZADD', due, now_ms() + delay_ms, key)
  return 1
end
redis.call('HSET', state, 'job', job_id)
redis.call('ZADD', due, now_ms() + recheck_wake_after_ms, key)
rq_enqueue(10, 13)
return 1
