-- Journal the message under the number just given; nothing happens if none was.
INSERT INTO inbox (id, event_id, platform, session_key, seq, payload, state, received_at)
SELECT :id, :event_id, :platform, :session_key, numbered.last_seq, :payload, 'pending', :now
FROM {{numbered}}
RETURNING seq AS id
