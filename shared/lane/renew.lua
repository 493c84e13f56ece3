-- Extend leases, each only for the worker that still holds it. A lease is taken again only where Redis forgot the key and
-- the job alike: after a loss. A key that went idle has a job that ended, and stays idle.
-- KEYS[1] due, then a state, a job and a mail for each lease
-- ARGV[1] lease_ms, then a token and a key for each lease
-- Returns a list, for each lease two numbers: 0 when it is someone else's or nobody's, 1 when it was renewed, or more: it was, and its mail up to that time (ms) is to be dropped; and how much mail it has.
-- include now.lua
local due, lease_ms = KEYS[1], tonumber(ARGV[1])
local until_ms = now_ms() + lease_ms
local answer = {}
for n = 0, (#KEYS - 1) / 3 - 1 do
  local state, job, mail = KEYS[2 + 3 * n], KEYS[3 + 3 * n], KEYS[4 + 3 * n]
  local token, key = ARGV[2 + 2 * n], ARGV[3 + 2 * n]
  local held = redis.call('HMGET', state, 'token', 'stop')
  if held[1] == token or redis.call('EXISTS', state, job) == 0 then
    redis.call('HSET', state, 'token', token, 'until', until_ms)
    redis.call('HSETNX', state, 'attempts', 1)
    redis.call('ZADD', due, until_ms, key)
    answer[#answer + 1] = tonumber(held[2]) or 1
  else
    answer[#answer + 1] = 0
  end
  answer[#answer + 1] = redis.call('ZCARD', mail)
end
return answer
