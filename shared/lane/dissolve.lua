-- Empty a queue that no worker serves any more. Its wakes are forgotten, waiting or popped: their keys get others.
-- KEYS[1] queue  KEYS[2] intermediate
-- ARGV[1] job prefix  ARGV[2] at most
-- Derived: each job, from its id in the queue.
-- Returns the keys that the wakes were for.
local queue, intermediate = KEYS[1], KEYS[2]
local job_prefix, at_most = ARGV[1], tonumber(ARGV[2])
local answer = {}
for _, list in ipairs({queue, intermediate}) do
  for _, job_id in ipairs(redis.call('LPOP', list, at_most) or {}) do
    local job = job_prefix .. job_id
    local fields = redis.call('HMGET', job, 'lane', 'status')
    if fields[2] == 'queued' then redis.call('DEL', job) end
    if fields[1] then answer[#answer + 1] = fields[1] end
  end
end
return answer
