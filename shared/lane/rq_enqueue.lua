-- What RQ's own enqueue leaves behind: the queue is known, the job has its hash, its id waits in the queue.
local function rq_enqueue(queues, queue, job, job_id, first_field)
  redis.call('SADD', queues, queue)
  redis.call('HSET', job, unpack(ARGV, first_field))
  redis.call('RPUSH', queue, job_id)
end
