-- Count a further attempt at the same mail, just before it begins.
-- KEYS[1] state
-- ARGV[1] token
-- Returns the count, or 0 when the lease is another's.
local state = KEYS[1]
local token = ARGV[1]
if redis.call('HGET', state, 'token') ~= token then return 0 end
return redis.call('HINCRBY', state, 'attempts', 1)
