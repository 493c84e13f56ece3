-- Count what a turn's answer cost, if the session is ours.
INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write, total,
                   cost_nano, priced, last_prompt, updated_at)
SELECT :session_id, :owner, :agent, :model, :day, :requests, :input, :output, :cache_read, :cache_write, :total,
       :cost_nano, :priced, CAST(:last_prompt AS BIGINT), :now
FROM {{ours}} WHERE true
ON CONFLICT (session_id, day, owner, agent, model) DO UPDATE
SET requests = usage.requests + excluded.requests, input = usage.input + excluded.input,
    output = usage.output + excluded.output, cache_read = usage.cache_read + excluded.cache_read,
    cache_write = usage.cache_write + excluded.cache_write, total = usage.total + excluded.total,
    cost_nano = usage.cost_nano + excluded.cost_nano, priced = usage.priced + excluded.priced,
    last_prompt = COALESCE(excluded.last_prompt, usage.last_prompt), updated_at = excluded.updated_at
