-- End a message that waits, if another of its key comes before it: no turn can be running it.
UPDATE inbox SET state = 'rejected', reason = :reason, turn_id = :turn_id, finished_at = :now
WHERE id = :id AND session_key = :session_key AND state = 'pending' AND EXISTS (
    SELECT 1 FROM inbox AS earlier
    WHERE earlier.session_key = :session_key AND earlier.state = 'pending' AND earlier.seq < inbox.seq)
RETURNING id
