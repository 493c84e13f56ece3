-- Tidy a queue's registries as RQ's own workers would, but without calling anything that a job names: jobs whose worker
-- died leave the started registry as failed, and what ended long enough ago leaves the others.
-- KEYS[1] wip  KEYS[2] failed  KEYS[3] finished
-- ARGV[1] failure_ttl_s  ARGV[2] job prefix  ARGV[3] execution prefix  ARGV[4] executions prefix  ARGV[5] at most
-- Derived: each job, its execution and its executions, from the entry `job id:execution id`.
-- Returns how many jobs were given up.
local wip, failed, finished = KEYS[1], KEYS[2], KEYS[3]
local failure_ttl_s, job_prefix, execution_prefix = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local executions_prefix, at_most = ARGV[4], tonumber(ARGV[5])
local now_s = tonumber(redis.call('TIME')[1])
local entries = redis.call('ZRANGEBYSCORE', wip, '-inf', now_s, 'LIMIT', 0, at_most)
for _, entry in ipairs(entries) do
  local job_id, execution_id = string.match(entry, '^(.*):(.*)$')
  redis.call('ZREM', wip, entry)
  if job_id then
    local job = job_prefix .. job_id
    redis.call('DEL', execution_prefix .. entry)
    redis.call('ZREM', executions_prefix .. job_id, execution_id)
    if redis.call('HGET', job, 'status') == 'started' then
      redis.call('HSET', job, 'status', 'failed')
      redis.call('EXPIRE', job, failure_ttl_s)
      redis.call('ZADD', failed, now_s + failure_ttl_s, job_id)
    end
  end
end
for _, registry in ipairs({failed, finished}) do redis.call('ZREMRANGEBYSCORE', registry, '-inf', now_s) end
return #entries
