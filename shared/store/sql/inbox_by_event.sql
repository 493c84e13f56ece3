-- The inbounds that came from one event id, newest first. Reads the whole journal: for a person, not for the pipeline.
SELECT id, platform, received_at FROM inbox WHERE event_id = :event_id ORDER BY received_at DESC LIMIT 10
