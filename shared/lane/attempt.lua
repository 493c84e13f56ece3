-- Count an attempt at a piece of mail, just before it begins. Counts of other mail are forgotten.
-- KEYS[1] state
-- ARGV[1] token  ARGV[2] seq
-- Returns the count, or 0 when the lease is another's.
local state = KEYS[1]
local token, seq = ARGV[1], ARGV[2]
local held = redis.call('HMGET', state, 'token', 'of')
if held[1] ~= token then return 0 end
if held[2] ~= seq then
  redis.call('HSET', state, 'of', seq, 'attempts', 0, 'failed', 0)
  redis.call('HDEL', state, 'outage')
end
return redis.call('HINCRBY', state, 'attempts', 1)
