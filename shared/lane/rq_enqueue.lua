-- What RQ's own enqueue leaves behind: the queue is known, the job has its hash, its id waits in the queue.
-- `k` counts KEYS and `a` counts ARGV from here:
-- KEYS queues, queue, job
-- ARGV job id, constant fields (a JSON list), now (text), data, queue name, key
local function rq_enqueue(k, a)
  local queues, queue, job = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local job_id, constant, now, data, queue_name, key = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5]
  redis.call('SADD', queues, queue)
  redis.call('HSET', job, 'created_at', now, 'enqueued_at', now, 'data', data, 'origin', queue_name, 'lane', key,
    unpack(cjson.decode(constant)))
  redis.call('RPUSH', queue, job_id)
end
