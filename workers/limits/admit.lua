-- Let one request to a model's provider begin, unless something is in its way: the provider's cool-down, as many open requests
-- as may be, or a minute's requests or tokens that are used up. A short wait is granted together with the request: its place is
-- taken. After any other answer nothing is taken.
-- KEYS[1] account  KEYS[2] permits
-- ARGV[1] permit  ARGV[2] lease_ms  ARGV[3] concurrency  ARGV[4] requests_per_minute  ARGV[5] tokens_per_minute  ARGV[6] tokens
-- ARGV[7] longest_wait_ms
-- A limit of 0 is none. A bucket holds ten seconds' worth. It may fall below zero: a large request is let in when the bucket is
-- full, and the next one waits. Those who must wait for long are told different times (`promised`), so they do not come together.
-- Concurrency is `halved` by refuse.lua, and grows by one for each minute since.
-- Returns {0 granted | 1 cooling | 2 all permits are taken | 3 over a rate, wait_ms, base_ms of the cool-down}.
local account, permits = KEYS[1], KEYS[2]
local permit, lease_ms, concurrency = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local requests_per_minute, tokens_per_minute = tonumber(ARGV[4]), tonumber(ARGV[5])
local tokens, longest_wait_ms = tonumber(ARGV[6]), tonumber(ARGV[7])
local minute_ms, longest_ms, look_again_ms = 60000, 60000, 200
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local known = redis.call('HMGET', account, 'cool_until', 'base', 'halved', 'refused_at', 'promised')
local cool_until = tonumber(known[1]) or 0
if cool_until > now then return {1, cool_until - now, tonumber(known[2]) or 0} end

if concurrency > 0 then
  local allowed = concurrency
  if known[3] then
    allowed = math.min(concurrency, tonumber(known[3]) + math.floor((now - tonumber(known[4])) / minute_ms))
  end
  redis.call('ZREMRANGEBYSCORE', permits, '-inf', now)
  if redis.call('ZCARD', permits) >= allowed then return {2, look_again_ms, 0} end
end

local function bucket(name, per_minute, cost)
  if per_minute == 0 then return 0, 0, 0 end
  local per_ms, most = per_minute / minute_ms, math.max(1, per_minute / 6)
  local kept = redis.call('HMGET', account, name, name .. '_at')
  local level = math.min(most, (tonumber(kept[1]) or most) + (now - (tonumber(kept[2]) or now)) * per_ms)
  return math.max(0, math.ceil((math.min(cost, most) - level) / per_ms)), level - cost, cost / per_ms
end
local requests_wait, requests_left, requests_ms = bucket('requests', requests_per_minute, 1)
local tokens_wait, tokens_left, tokens_ms = bucket('tokens', tokens_per_minute, tokens)
local wait = math.max(requests_wait, tokens_wait)
local keep_ms = minute_ms * (concurrency + 2)
if wait > longest_wait_ms then
  local promised = math.max(tonumber(known[5]) or 0, now + wait) + math.ceil(math.max(requests_ms, tokens_ms))
  promised = math.min(promised, now + math.max(wait, longest_ms))
  redis.call('HSET', account, 'promised', promised)
  redis.call('PEXPIRE', account, keep_ms + wait)
  return {3, promised - now, 0}
end

if requests_per_minute > 0 then redis.call('HSET', account, 'requests', requests_left, 'requests_at', now) end
if tokens_per_minute > 0 then
  redis.call('HSET', account, 'tokens', tokens_left, 'tokens_at', now)
  keep_ms = keep_ms + math.max(0, math.ceil(-tokens_left / tokens_per_minute * minute_ms))
end
redis.call('PEXPIRE', account, keep_ms)
if concurrency > 0 then
  redis.call('ZADD', permits, now + wait + lease_ms, permit)
  redis.call('PEXPIRE', permits, wait + lease_ms)
end
return {0, wait, 0}
