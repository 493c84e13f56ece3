-- Keep the permits of requests that are still open. One that has run out and is gone stays gone.
-- KEYS[1] permits
-- ARGV[1] lease_ms  ARGV[2] and on: the permits to keep
-- Returns how many were kept, 0 if none.
local permits, lease_ms = KEYS[1], tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kept = 0
for i = 2, #ARGV do
  if redis.call('ZSCORE', permits, ARGV[i]) then
    redis.call('ZADD', permits, now + lease_ms, ARGV[i])
    kept = kept + 1
  end
end
if kept > 0 then redis.call('PEXPIRE', permits, lease_ms) end
return kept
