-- Keep a note of a session that has been looked at, unless it is there. It returns its id so that PostgreSQL keeps the order.
INSERT INTO notes (owner, text, session_id, created_at)
SELECT :owner, :text, :session_id, :now
FROM {{flushed}} WHERE NOT EXISTS (SELECT 1 FROM notes WHERE notes.owner = :owner AND notes.text = :text)
RETURNING id
