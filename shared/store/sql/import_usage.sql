-- What a model has cost in an imported session, in sum, if the session is signed by this import.
INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write, total,
                   cost_nano, priced, last_prompt, updated_at)
SELECT id, :owner, :agent, :model, :day, :requests, :input, :output, :cache_read, :cache_write, :total,
       :cost_nano, :priced, CAST(:last_prompt AS BIGINT), :now
FROM sessions WHERE id = :session_id AND turn_id = :turn_id
ON CONFLICT (session_id, day, owner, agent, model) DO UPDATE
SET requests = excluded.requests, input = excluded.input, output = excluded.output, cache_read = excluded.cache_read,
    cache_write = excluded.cache_write, total = excluded.total, cost_nano = excluded.cost_nano, priced = excluded.priced,
    last_prompt = excluded.last_prompt, updated_at = excluded.updated_at
