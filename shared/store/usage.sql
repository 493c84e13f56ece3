-- Accounting. Table: usage (one row per session, day, owner, agent and model; counts are added up). `priced` counts the
-- requests whose cost is known. A turn's usage is counted by its commit: commit_usage in batch.sql.

-- name: usage_aside
-- Count what a question beside the turns cost.
INSERT INTO usage (session_id, owner, agent, model, day, requests, input, output, cache_read, cache_write, total,
                   cost_nano, priced, last_prompt, updated_at)
VALUES (:session_id, :owner, :agent, :model, :day, :requests, :input, :output, :cache_read, :cache_write, :total,
       :cost_nano, :priced, CAST(:last_prompt AS BIGINT), :now)
ON CONFLICT (session_id, day, owner, agent, model) DO UPDATE
SET requests = usage.requests + excluded.requests, input = usage.input + excluded.input,
    output = usage.output + excluded.output, cache_read = usage.cache_read + excluded.cache_read,
    cache_write = usage.cache_write + excluded.cache_write, total = usage.total + excluded.total,
    cost_nano = usage.cost_nano + excluded.cost_nano, priced = usage.priced + excluded.priced,
    last_prompt = COALESCE(excluded.last_prompt, usage.last_prompt), updated_at = excluded.updated_at

-- name: usage_of_session
-- What a session has cost.
SELECT SUM(requests) AS requests, SUM(input) AS input, SUM(output) AS output, SUM(cache_read) AS cache_read,
       SUM(cache_write) AS cache_write, SUM(total) AS total, SUM(cost_nano) AS cost_nano, SUM(priced) AS priced
FROM usage WHERE session_id = :session_id

-- name: usage_last_prompt
-- How many tokens a session's last prompt had.
SELECT last_prompt FROM usage WHERE session_id = :session_id AND last_prompt IS NOT NULL
ORDER BY updated_at DESC LIMIT 1

-- name: usage_of_owner
-- What an owner has cost since a day.
SELECT SUM(requests) AS requests, SUM(input) AS input, SUM(output) AS output, SUM(cache_read) AS cache_read,
       SUM(cache_write) AS cache_write, SUM(total) AS total, SUM(cost_nano) AS cost_nano, SUM(priced) AS priced
FROM usage WHERE owner = :owner AND day >= :day

-- name: usage_of_day
-- What everybody has cost since a day, and how many rows say so.
SELECT COUNT(*) AS rows, SUM(requests) AS requests, SUM(input) AS input, SUM(output) AS output, SUM(cache_read) AS cache_read,
       SUM(cache_write) AS cache_write, SUM(total) AS total, SUM(cost_nano) AS cost_nano, SUM(priced) AS priced
FROM usage WHERE day >= :day

-- name: usage_by_owner
-- What was spent since a day, by owner.
SELECT owner AS name, SUM(requests) AS requests, SUM(input) AS input, SUM(output) AS output, SUM(cache_read) AS cache_read,
       SUM(cache_write) AS cache_write, SUM(total) AS total, SUM(cost_nano) AS cost_nano, SUM(priced) AS priced
FROM usage WHERE day >= :day GROUP BY owner ORDER BY SUM(total) DESC, owner LIMIT :limit

-- name: usage_by_agent
-- What was spent since a day, by agent.
SELECT agent AS name, SUM(requests) AS requests, SUM(input) AS input, SUM(output) AS output, SUM(cache_read) AS cache_read,
       SUM(cache_write) AS cache_write, SUM(total) AS total, SUM(cost_nano) AS cost_nano, SUM(priced) AS priced
FROM usage WHERE day >= :day GROUP BY agent ORDER BY SUM(total) DESC, agent LIMIT :limit

-- name: usage_by_model
-- What was spent since a day, by model.
SELECT model AS name, SUM(requests) AS requests, SUM(input) AS input, SUM(output) AS output, SUM(cache_read) AS cache_read,
       SUM(cache_write) AS cache_write, SUM(total) AS total, SUM(cost_nano) AS cost_nano, SUM(priced) AS priced
FROM usage WHERE day >= :day GROUP BY model ORDER BY SUM(total) DESC, model LIMIT :limit

-- name: usage_by_day
-- What was spent since a day, by day.
SELECT day AS name, SUM(requests) AS requests, SUM(input) AS input, SUM(output) AS output, SUM(cache_read) AS cache_read,
       SUM(cache_write) AS cache_write, SUM(total) AS total, SUM(cost_nano) AS cost_nano, SUM(priced) AS priced
FROM usage WHERE day >= :day GROUP BY day ORDER BY day DESC LIMIT :limit
