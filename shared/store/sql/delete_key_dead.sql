-- What a key never took in while it talked in a session that is no more: no turn has it.
DELETE FROM dead
WHERE session_key = :session_key AND created_at BETWEEN :since AND :until AND kind IN ('inbound', 'mail')
  AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.id = dead.ref)
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)
