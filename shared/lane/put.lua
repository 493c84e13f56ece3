-- Put mail into a key's mailbox, and wake the key if it is idle. Repeating the call changes nothing. A running turn that
-- asked for it (listen.lua) is told that mail came; that it is not is no error, because it also looks by itself.
-- KEYS[1] mail  KEYS[2] state  KEYS[3] due  KEYS[4] seen  KEYS[5..7] as rq_enqueue
-- KEYS[8] intermediate, if the caller takes the wake himself: it is popped as soon as it is queued
-- ARGV[1] key  ARGV[2] seq, 0 = assign one  ARGV[3] payload  ARGV[4] limit  ARGV[5] seen_ttl_s, 0 = do not look
-- ARGV[6] recheck_wake_after_ms  ARGV[7..12] as rq_enqueue
-- Derived: the channel that the state's `hears` names.
-- Returns 1 when it woke the key, 0 when the key was awake, -1 when seen before, -2 when the mailbox is full.
-- include now.lua
-- include rq_enqueue.lua
local mail, state, due, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key, seq, payload, limit = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local seen_ttl_s, recheck_wake_after_ms, job_id = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
if redis.call('ZCARD', mail) >= limit and not redis.call('ZSCORE', mail, payload) then return -2 end
if seen_ttl_s > 0 and not redis.call('SET', seen, key, 'NX', 'EX', seen_ttl_s) then return -1 end
if seq == 0 then
  local time = redis.call('TIME')
  local last = redis.call('ZRANGE', mail, -1, -1, 'WITHSCORES')
  seq = math.max(time[1] * 1000000 + time[2], (tonumber(last[2]) or 0) + 1)
end
redis.call('ZADD', mail, 'NX', string.format('%.0f', seq), payload)
if redis.call('EXISTS', state) == 1 then
  local told = redis.call('HMGET', state, 'hears', 'job')
  if told[1] and told[2] then
    redis.pcall('PUBLISH', told[1], cjson.encode({command = 'look-turn', job_id = told[2]}))
  end
  return 0
end
redis.call('HSET', state, 'job', job_id)
redis.call('ZADD', due, now_ms() + recheck_wake_after_ms, key)
rq_enqueue(5, 7)
if KEYS[8] then redis.call('LMOVE', KEYS[6], KEYS[8], 'RIGHT', 'RIGHT') end
return 1
