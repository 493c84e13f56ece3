-- Journal the message under the number just given; nothing happens if none was.
INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, received_at)
SELECT :id, :event_id, :platform, :session_key, routes.last_seq, :payload, 'pending', :now
FROM routes
WHERE routes.session_key = :session_key
  AND NOT EXISTS (SELECT 1 FROM inbox WHERE id = :id)
  AND NOT EXISTS (
      SELECT 1 FROM inbox AS last
      WHERE last.session_key = routes.session_key AND last.seq = routes.last_seq AND last.state = 'pending')
RETURNING seq
