-- Delete a session that is still as it was looked at: the compare-and-set of deleting.
DELETE FROM sessions WHERE id = :session_id AND version = :version RETURNING id
