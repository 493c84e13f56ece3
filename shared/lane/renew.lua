-- Extend leases, each only for the worker that still holds it. A lease that Redis forgot altogether is taken again.
-- KEYS[1] due  KEYS[2] and on: states
-- ARGV[1] lease_ms, then a token and a key for each state
-- Returns a list, 1 for each lease renewed, 0 for each that is someone else's.
-- include now.lua
local due, lease_ms = KEYS[1], tonumber(ARGV[1])
local until_ms = now_ms() + lease_ms
local answer = {}
for i = 2, #KEYS do
  local state, token, key = KEYS[i], ARGV[2 * i - 2], ARGV[2 * i - 1]
  if redis.call('HGET', state, 'token') == token or redis.call('EXISTS', state) == 0 then
    redis.call('HSET', state, 'token', token, 'until', until_ms)
    redis.call('HSETNX', state, 'attempts', 1)
    redis.call('ZADD', due, until_ms, key)
    answer[#answer + 1] = 1
  else
    answer[#answer + 1] = 0
  end
end
return answer
