-- Let the turn that runs under a lease hear of mail as it is put, and show it what waits.
-- KEYS[1] mail  KEYS[2] state
-- ARGV[1] token  ARGV[2] channel  ARGV[3] limit
-- The state's `hears` keeps the channel until the lease ends.
-- Returns {-1} when the lease is another's, else {1, the highest seq, seq, payload, ...}.
local mail, state = KEYS[1], KEYS[2]
local token, channel, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
if redis.call('HGET', state, 'token') ~= token then return {-1} end
redis.call('HSET', state, 'hears', channel)
local waiting = redis.call('ZRANGE', mail, 0, limit - 1, 'WITHSCORES')
local answer = {1, redis.call('ZRANGE', mail, -1, -1, 'WITHSCORES')[2] or '0'}
for i = 1, #waiting, 2 do
  answer[#answer + 1] = waiting[i + 1]
  answer[#answer + 1] = waiting[i]
end
return answer
