-- Look at a key whose time has come: wake it if its lease or its delay has ended, or if its wake is lost. A key that lost
-- its worker or its wake goes to the front of the queue: it has waited there once. One whose message lost a second worker
-- goes to the end: where leases end because the machine is slow, keys that come back would keep all others waiting.
-- A queued wake is trusted, but not for ever: it may be in a queue that nobody serves. At the fourth look a second wake is
-- made, then at the 8th, 16th, 32nd and every 64th, so that a long queue does not grow by looking at it. A second wake does no harm.
-- KEYS[1] mail  KEYS[2] state  KEYS[3] due  KEYS[4..6] as rq_enqueue
-- ARGV[1] key  ARGV[2] recheck_wake_after_ms  ARGV[3] job prefix  ARGV[4..9] as rq_enqueue
-- Derived: the key's last job, whose id the state holds.
-- The state's `waited` says how many looks found which wake still queued.
-- Returns 0 when there was nothing to do, 1 when a delay ended, 2 when a lease had expired, 3 when a wake was lost, 4 when it was not started in time.
-- include now.lua
-- include rq_enqueue.lua
local mail, state, due, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local key, recheck_wake_after_ms, job_prefix, job_id = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local FIRST, MOST = 4, 64
local at = now_ms()
local held = redis.call('HMGET', state, 'token', 'until', 'job', 'waited', 'attempts')
local token, until_ms, last_job, attempts = held[1], tonumber(held[2]), held[3], tonumber(held[5]) or 0
if until_ms and until_ms > at then
  redis.call('ZADD', due, until_ms, key)
  return 0
end
if redis.call('ZCARD', mail) == 0 then
  redis.call('DEL', state)
  redis.call('ZREM', due, key)
  return 0
end
local cause, waited = 3, nil
if token then
  cause = 2
elseif until_ms then
  cause = 1
elseif last_job and redis.call('HGET', job_prefix .. last_job, 'status') == 'queued' then
  local looks, of = string.match(held[4] or '', '^(%d+):(.*)$')
  looks = (of == last_job and looks or 0) + 1
  local enough = FIRST
  while enough < looks do enough = enough + math.min(enough, MOST) end
  if looks < enough then
    redis.call('HSET', state, 'waited', looks .. ':' .. last_job)
    redis.call('ZADD', due, at + recheck_wake_after_ms, key)
    return 0
  end
  cause, waited = 4, looks .. ':' .. job_id
end
redis.call('HDEL', state, 'token', 'until', 'since', 'hears', 'waited')
redis.call('HSET', state, 'job', job_id)
if waited then redis.call('HSET', state, 'waited', waited) end
redis.call('ZADD', due, at + recheck_wake_after_ms, key)
rq_enqueue(4, 4)
if cause == 3 or (cause == 2 and attempts < 2) then redis.call('LMOVE', queue, queue, 'RIGHT', 'LEFT') end
return cause
