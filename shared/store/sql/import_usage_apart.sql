-- What a model has cost on a day at an older gateway, in sum, where no session is known.
INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write, total,
                   cost_nano, priced, last_prompt, updated_at)
VALUES (:session_id, :owner, :agent, :model, :day, :requests, :input, :output, :cache_read, :cache_write, :total,
       :cost_nano, :priced, CAST(:last_prompt AS BIGINT), :now)
ON CONFLICT (session_id, day, owner, agent, model) DO UPDATE
SET requests = excluded.requests, input = excluded.input, output = excluded.output, cache_read = excluded.cache_read,
    cache_write = excluded.cache_write, total = excluded.total, cost_nano = excluded.cost_nano, priced = excluded.priced,
    last_prompt = excluded.last_prompt, updated_at = excluded.updated_at
