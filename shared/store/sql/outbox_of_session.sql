-- The parts of one session after a given one, for readers that follow it.
SELECT id, turn_id, ordinal, payload FROM outbox WHERE session_key = :session_key AND id > :after ORDER BY id LIMIT :limit
