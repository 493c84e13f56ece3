-- Start a wake as RQ would, and claim the key that it names: its lease and its first mail. Repeating the call with the
-- same token gives the same answer.
-- KEYS[1] job  KEYS[2] intermediate  KEYS[3] wip  KEYS[4] execution  KEYS[5] executions  KEYS[6] due  KEYS[7] pauses
-- KEYS[8] parked
-- ARGV[1] job id  ARGV[2] execution id  ARGV[3] worker name  ARGV[4] now (text)  ARGV[5] now_s  ARGV[6] heartbeat_ttl_s
-- ARGV[7] token  ARGV[8] lease_ms  ARGV[9] limit  ARGV[10] mail prefix  ARGV[11] state prefix
-- ARGV[12] lane
-- Derived: mail and state, from the job's own field `lane`: the popped id is all that the caller knows.
-- A first attempt at the head of the mailbox is counted here; a further one is not begun until attempt.lua counts it.
-- `of` says which mail the counts belong to: another may have come to the head since.
-- `stop` says up to when mail is to be dropped (stop.lua), `since` when the mail at the head was begun, `outage` since when
-- the provider that it needs is away, `paused` which pause the key was parked for.
-- Returns {-1} when the job is gone, else {3 paused | 2 leased | 1 held by another | 0 idle, data, key, attempts, begun, failed, stop, outage_ms or -1, seq, payload, ...}.
-- include now.lua
-- include pause_of.lua
local job, intermediate, wip, execution, executions, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local job_id, execution_id, worker_name, now, now_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local redis_s = tonumber(redis.call('TIME')[1])  -- registries are pruned by this clock; a worker's may be wrong
local pauses, parked, lane = KEYS[7], KEYS[8], ARGV[12]
local heartbeat_ttl_s, token, lease_ms, limit = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
redis.call('LREM', intermediate, 1, job_id)
local fields = redis.call('HMGET', job, 'data', 'lane')
local data, key = fields[1], fields[2]
if not data then return {-1} end
redis.call('HSET', job, 'status', 'started', 'started_at', now, 'last_heartbeat', now, 'worker_name', worker_name)
redis.call('PERSIST', job)
redis.call('HSET', execution, 'id', execution_id, 'created_at', now_s, 'last_heartbeat', now_s, 'worker_name', worker_name)
redis.call('EXPIRE', execution, heartbeat_ttl_s)
redis.call('ZADD', executions, redis_s + heartbeat_ttl_s + 60, execution_id)
redis.call('EXPIRE', executions, heartbeat_ttl_s + 60)
redis.call('ZADD', wip, redis_s + heartbeat_ttl_s, job_id .. ':' .. execution_id)
if not key then return {0, data, ''} end
local mail, state = ARGV[10] .. key, ARGV[11] .. key
local held = redis.call('HMGET', state, 'token', 'until', 'of', 'attempts', 'failed', 'stop', 'outage', 'paused')
local at = now_ms()
if held[1] ~= token and (tonumber(held[2]) or 0) > at then return {1, data, key} end
if held[8] then
  redis.call('HDEL', state, 'paused')
  redis.call('ZREM', parked, held[8] .. ' ' .. key)
end
local waiting = redis.call('ZRANGE', mail, 0, limit - 1, 'WITHSCORES')
if #waiting == 0 then
  redis.call('DEL', state)
  redis.call('ZREM', due, key)
  return {0, data, key}
end
local scope = pause_of(pauses, lane, key)
if scope then
  park(parked, due, state, scope, key)
  return {3, data, key}
end
local of, attempts, failed = waiting[2], tonumber(held[4]) or 0, tonumber(held[5]) or 0
local outage = tonumber(held[7])
if held[3] ~= of then
  attempts, failed, outage = 0, 0, nil
  if held[7] then redis.call('HDEL', state, 'outage') end
end
local begun = attempts == 0 or held[1] == token
if attempts == 0 then attempts = 1 end
redis.call('HSET', state, 'token', token, 'until', at + lease_ms, 'job', job_id, 'of', of, 'attempts', attempts,
  'failed', failed, 'since', at)
redis.call('ZADD', due, at + lease_ms, key)
local answer = {2, data, key, attempts, begun and 1 or 0, failed, tonumber(held[6]) or 0,
  outage and math.max(at - outage, 0) or -1}
for i = 1, #waiting, 2 do
  answer[#answer + 1] = waiting[i + 1]
  answer[#answer + 1] = waiting[i]
end
return answer
