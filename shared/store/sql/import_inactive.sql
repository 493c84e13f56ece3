-- Rows that left the conversation there since the last import, if the session is signed by this one.
UPDATE messages SET active = 0
WHERE session_id = :session_id AND n >= :from_n AND n <= :to_n AND active = 1
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND turn_id = :turn_id)
