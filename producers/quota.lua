-- Count a message against its quotas, unless one of them is used up: then nothing is counted. Repeating the call for the same
-- message counts it once.
-- KEYS[1] told
-- KEYS[2] and on, for each quota: a set of message ids (per minute), or a sorted set of keys by time (in flight)
-- ARGV[1] message  ARGV[2] key  ARGV[3] window_ms  ARGV[4] grace_ms  ARGV[5] flight_ttl_ms
-- ARGV[6] and on, for each quota: its limit, negative for one in flight
-- Returns 0 when counted; else the place of the quota that is used up, ms until it may be tried again, 1 when nobody was told
-- in this window and 0 when somebody was, and for one in flight the keys that may have ended.
local message, key, window_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local grace_ms, flight_ttl_ms = tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, #KEYS do
  local name, limit = KEYS[i], tonumber(ARGV[i + 4])
  local used, known
  if limit < 0 then
    used, known = redis.call('ZCARD', name), redis.call('ZSCORE', name, key)
  else
    used, known = redis.call('SCARD', name), redis.call('SISMEMBER', name, message) == 1
  end
  if not known and used >= math.abs(limit) then
    local left_ms, ended = window_ms, {}
    if limit < 0 then
      ended = redis.call('ZRANGE', name, '-inf', now - grace_ms, 'BYSCORE', 'LIMIT', 0, 256)
    else
      left_ms = math.max(redis.call('PTTL', name), 1)
    end
    if #ended > 0 then return {i - 1, left_ms, 0, unpack(ended)} end
    local first = redis.call('SET', KEYS[1], '1', 'NX', 'PX', left_ms)
    return {i - 1, left_ms, first and 1 or 0}
  end
end
for i = 2, #KEYS do
  local name = KEYS[i]
  if tonumber(ARGV[i + 4]) < 0 then
    redis.call('ZADD', name, now, key)
    redis.call('PEXPIRE', name, flight_ttl_ms)
  else
    redis.call('SADD', name, message)
    if redis.call('PTTL', name) < 0 then redis.call('PEXPIRE', name, window_ms) end
  end
end
return {0}
