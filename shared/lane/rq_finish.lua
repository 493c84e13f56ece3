-- What RQ's own handling of a successful job leaves behind, once: a job that has ended, well or not, stays as it ended.
-- `k` counts KEYS and `a` counts ARGV from here:
-- KEYS job, results, finished, wip, execution, executions, worker
-- ARGV job id, execution id, worker name, started_s, ended_s, ended (text), result_ttl_s
local function rq_finish(k, a)
  local job, results, finished, wip = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local execution, executions, worker = KEYS[k + 4], KEYS[k + 5], KEYS[k + 6]
  local job_id, execution_id, worker_name = ARGV[a], ARGV[a + 1], ARGV[a + 2]
  local started_s, ended_s, ended, result_ttl_s = ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], ARGV[a + 6]
  local running = redis.call('HGET', job, 'status') == 'started'
  if running then
    redis.call('HSET', job, 'status', 'finished', 'ended_at', ended)
    redis.call('EXPIRE', job, result_ttl_s)
    redis.call('XADD', results, 'MAXLEN', 10, '*', 'type', 1, 'worker_name', worker_name, 'execution_id', execution_id,
      'execution_started_at', started_s, 'execution_ended_at', ended_s)
    redis.call('EXPIRE', results, result_ttl_s)
    redis.call('ZADD', finished, redis.call('TIME')[1] + result_ttl_s, job_id)  -- a worker's clock may be wrong
  end
  redis.call('DEL', execution)
  redis.call('ZREM', wip, job_id .. ':' .. execution_id)
  redis.call('ZREM', executions, execution_id)
  if running and redis.call('EXISTS', worker) == 1 then
    redis.call('HINCRBY', worker, 'successful_job_count', 1)
    redis.call('HINCRBYFLOAT', worker, 'total_working_time', ended_s - started_s)
  end
end
