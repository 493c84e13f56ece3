-- Move a key to another server: drop the mail that has arrived there, and give the next. When no mail is left, nothing of
-- the key is. A worker that holds the key here is not disturbed.
-- KEYS[1] mail  KEYS[2] state  KEYS[3] due
-- ARGV[1] key  ARGV[2] limit, then the payloads that have arrived
-- Returns {0} while a worker holds the key here, {1, seq, payload, ...} for mail to be moved, {1} when nothing is left.
-- include now.lua
local mail, state, due = KEYS[1], KEYS[2], KEYS[3]
local key, limit = ARGV[1], tonumber(ARGV[2])
for i = 3, #ARGV do redis.call('ZREM', mail, ARGV[i]) end
local held = redis.call('HMGET', state, 'token', 'until')
local until_ms = tonumber(held[2]) or 0
if held[1] and until_ms > now_ms() then
  redis.call('ZADD', due, until_ms, key)
  return {0}
end
local waiting = redis.call('ZRANGE', mail, 0, limit - 1, 'WITHSCORES')
if #waiting == 0 then
  redis.call('DEL', state)
  redis.call('ZREM', due, key)
end
local answer = {1}
for i = 1, #waiting, 2 do
  answer[#answer + 1] = waiting[i + 1]
  answer[#answer + 1] = waiting[i]
end
return answer
