-- What a key's chat was told of such messages.
DELETE FROM outbox
WHERE session_key = :session_key AND created_at BETWEEN :since AND :until
  AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = outbox.turn_id)
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)
