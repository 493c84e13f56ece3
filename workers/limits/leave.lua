-- End a request: give its permit back, and count the tokens that it used instead of those that were expected.
-- KEYS[1] account  KEYS[2] permits
-- ARGV[1] permit  ARGV[2] more_tokens (than were expected; negative: fewer)
-- Returns 1 when a permit was given back, 0 when there was none.
local account, permits = KEYS[1], KEYS[2]
local permit, more_tokens = ARGV[1], tonumber(ARGV[2])
if more_tokens ~= 0 and redis.call('HEXISTS', account, 'tokens') == 1 then
  redis.call('HINCRBYFLOAT', account, 'tokens', -more_tokens)
end
return redis.call('ZREM', permits, permit)
