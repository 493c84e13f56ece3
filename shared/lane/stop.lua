-- Ask for a key's running turn to end and for its waiting mail to be dropped, as far as it was received by a given time.
-- The state remembers it for whoever holds the key next; the worker that holds it now is told at once. A delay ends.
-- KEYS[1] state  KEYS[2] due  KEYS[3] mail  KEYS[4..6] as rq_enqueue
-- ARGV[1] key  ARGV[2] at_ms  ARGV[3] recheck_wake_after_ms  ARGV[4] limit  ARGV[5] job prefix  ARGV[6] channel prefix  ARGV[7..12] as rq_enqueue
-- Derived: the holder's job, whose id the state holds, and the channel of the worker that the job names.
-- Returns {0} when the key is idle, else {1 awake | 2 was delayed | 3 leased, payload, ...}.
-- include now.lua
-- include rq_enqueue.lua
local state, due, mail = KEYS[1], KEYS[2], KEYS[3]
local key, at_ms, recheck_wake_after_ms, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local job_prefix, channel_prefix = ARGV[5], ARGV[6]
if redis.call('EXISTS', state) == 0 then return {0} end
local held = redis.call('HMGET', state, 'token', 'until', 'job')
local answer = {1}
if held[1] and (tonumber(held[2]) or 0) > now_ms() then
  answer[1] = 3
  local worker = held[3] and redis.call('HGET', job_prefix .. held[3], 'worker_name')
  if worker then
    redis.call('PUBLISH', channel_prefix .. worker, cjson.encode({command = 'stop-turn', job_id = held[3], at_ms = at_ms}))
  end
end
redis.call('HSET', state, 'stop', at_ms)  -- after PUBLISH: who may not publish there changes nothing
if held[2] and not held[1] then
  answer[1] = 2
  redis.call('HDEL', state, 'until')
  redis.call('HSET', state, 'job', ARGV[7])
  redis.call('ZADD', due, now_ms() + recheck_wake_after_ms, key)
  rq_enqueue(4, 7)
end
for _, payload in ipairs(redis.call('ZRANGE', mail, 0, limit - 1)) do answer[#answer + 1] = payload end
return answer
