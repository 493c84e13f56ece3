-- Put wakes back that a worker popped and never started.
-- KEYS[1] intermediate  KEYS[2] queue
-- ARGV job ids
-- Returns how many went back.
local intermediate, queue = KEYS[1], KEYS[2]
local back = 0
for _, job_id in ipairs(ARGV) do
  if redis.call('LREM', intermediate, 1, job_id) == 1 then
    redis.call('LPUSH', queue, job_id)
    back = back + 1
  end
end
return back
