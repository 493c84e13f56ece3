-- Tell the worker that runs a key's turn to look at the key's mailbox, and which busy mode counts for mail from now on.
-- KEYS[1] state  KEYS[2] mail
-- ARGV[1] mode, empty = as before  ARGV[2] job prefix  ARGV[3] channel prefix
-- Derived: the holder's job, whose id the state holds, and the channel of the worker that the job names.
-- Returns 1 when a worker was told, 0 when nobody holds the key.
-- include now.lua
local state, mail = KEYS[1], KEYS[2]
local mode, job_prefix, channel_prefix = ARGV[1], ARGV[2], ARGV[3]
local held = redis.call('HMGET', state, 'token', 'until', 'job')
if not held[1] or not held[3] or (tonumber(held[2]) or 0) <= now_ms() then return 0 end
local worker = redis.call('HGET', job_prefix .. held[3], 'worker_name')
if not worker then return 0 end
local last = redis.call('ZRANGE', mail, -1, -1, 'WITHSCORES')[2] or '0'
redis.pcall('PUBLISH', channel_prefix .. worker,
  cjson.encode({command = 'look-turn', job_id = held[3], mode = mode, after = last}))
return 1
