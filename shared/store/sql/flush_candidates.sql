-- Sessions that were last active in a stretch of time and have rows that nobody looked at, in order of that time.
SELECT id, session_key, updated_at FROM sessions
WHERE updated_at >= :after AND updated_at < :before AND (updated_at > :after OR id > :after_id)
  AND ended_at IS NULL AND message_count > 0
  AND NOT EXISTS (
      SELECT 1 FROM flushes
      WHERE flushes.session_id = sessions.id AND (flushes.state = 'due' OR flushes.upto >= sessions.message_count))
ORDER BY updated_at, id LIMIT :limit
