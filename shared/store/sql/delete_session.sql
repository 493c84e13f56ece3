-- Delete a session that is still as it was looked at, by turns and by the indexer: the compare-and-set of deleting.
DELETE FROM sessions WHERE id = :session_id AND version = :version AND searched = :searched RETURNING id
