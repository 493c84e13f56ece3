-- What an operator ended of a key's mail while it talked in a session that is no more: no turn has it.
UPDATE inbox SET payload = ''
WHERE session_key = :session_key AND finished_at BETWEEN :since AND :until
  AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = inbox.turn_id)
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)
