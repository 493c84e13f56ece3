-- A provider has refused a request because of too many: leave it alone for a while, all of us. The workers are told at once.
-- KEYS[1] account  KEYS[2] permits  KEYS[3] channel
-- ARGV[1] permit  ARGV[2] asked_ms (-1: it named no time)  ARGV[3] concurrency  ARGV[4] name
-- A refusal during a cool-down is of a request that was sent before it: it can make the cool-down longer and counts no further.
-- Where the provider names no time, it is one second, and twice as long after each further refusal, up to a minute. A minute
-- without a refusal ends the row.
-- Returns {wait_ms, base_ms}: how long the cool-down lasts from now, and how long it was when it began.
local account, permits, channel = KEYS[1], KEYS[2], KEYS[3]
local permit, asked_ms, concurrency, name = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local minute_ms, most_refusals = 60000, 7
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HMGET', account, 'cool_until', 'base', 'refusals', 'halved', 'refused_at')
local cool_until, refusals = tonumber(known[1]) or 0, tonumber(known[3]) or 0
local is_first, halved = cool_until <= now, nil
if is_first then
  if now - cool_until > minute_ms then refusals = 0 end
  refusals = math.min(refusals + 1, most_refusals)
  if concurrency > 0 then
    local allowed = concurrency
    if known[4] then
      allowed = math.min(concurrency, tonumber(known[4]) + math.floor((now - tonumber(known[5])) / minute_ms))
    end
    halved = math.max(1, math.floor(allowed / 2))
  end
end
local base = asked_ms
if asked_ms < 0 then base = math.min(minute_ms, 1000 * 2 ^ (refusals - 1)) end
local is_longer = now + base > cool_until
if is_longer then cool_until = now + base else base = tonumber(known[2]) or base end
redis.call('PUBLISH', channel, name .. ' ' .. (cool_until - now) .. ' ' .. base)  -- first: who may not publish changes nothing
if halved then redis.call('HSET', account, 'halved', halved) end
if is_first then redis.call('HSET', account, 'refused_at', now, 'refusals', refusals) end
if is_longer then redis.call('HSET', account, 'cool_until', cool_until, 'base', base) end
redis.call('PEXPIRE', account, cool_until - now + minute_ms * (concurrency + 2))
redis.call('ZREM', permits, permit)
return {cool_until - now, base}
