-- Drop done mail, then go on with the next; or hand the key over to a fresh wake, park it for a pause, or go idle: then the job ends.
-- "Is the mailbox empty?" and "give up the lease" are this one script, so no message can fall between them.
-- KEYS[1] mail  KEYS[2] state  KEYS[3] due  KEYS[4..10] as rq_finish  KEYS[11] pauses  KEYS[12] parked
-- KEYS[13..15] as rq_enqueue, to hand over
-- ARGV[1] key  ARGV[2] token  ARGV[3] lease_ms  ARGV[4] limit  ARGV[5] hand over?  ARGV[6] recheck_wake_after_ms
-- ARGV[7..13] as rq_finish  ARGV[14] lane  ARGV[15] count of seqs, then the seqs, then as rq_enqueue, to hand over
-- Returns {-1} when the lease is another's, {0} when it has ended here, {1, seq, payload, ...} when it goes on with this mail.
-- include now.lua
-- include pause_of.lua
-- include rq_enqueue.lua
-- include rq_finish.lua
local mail, state, due, pauses, parked = KEYS[1], KEYS[2], KEYS[3], KEYS[11], KEYS[12]
local key, token, lease_ms, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local hand_over, recheck_wake_after_ms, lane, count = ARGV[5] == '1', tonumber(ARGV[6]), ARGV[14], tonumber(ARGV[15])
if redis.call('HGET', state, 'token') ~= token then
  rq_finish(4, 7)
  return {-1}
end
for i = 16, 15 + count do redis.call('ZREMRANGEBYSCORE', mail, ARGV[i], ARGV[i]) end
local waiting = redis.call('ZRANGE', mail, 0, limit - 1, 'WITHSCORES')
if #waiting == 0 then
  redis.call('DEL', state)
  redis.call('ZREM', due, key)
  rq_finish(4, 7)
  return {0}
end
local scope = pause_of(pauses, lane, key)
if hand_over or scope then
  local stop = redis.call('HGET', state, 'stop')
  redis.call('DEL', state)
  if stop then redis.call('HSET', state, 'stop', stop) end
end
if scope then
  park(parked, due, state, scope, key)
  rq_finish(4, 7)
  return {0}
end
if hand_over then
  redis.call('HSET', state, 'job', ARGV[16 + count])
  redis.call('ZADD', due, now_ms() + recheck_wake_after_ms, key)
  rq_finish(4, 7)
  rq_enqueue(13, 16 + count)
  return {0}
end
local at = now_ms()
redis.call('HSET', state, 'of', waiting[2], 'attempts', 1, 'failed', 0, 'until', at + lease_ms, 'since', at)
redis.call('HDEL', state, 'outage')
redis.call('ZADD', due, at + lease_ms, key)
local answer = {1}
for i = 1, #waiting, 2 do
  answer[#answer + 1] = waiting[i + 1]
  answer[#answer + 1] = waiting[i]
end
return answer
