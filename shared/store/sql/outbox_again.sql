-- A buried part is to be sent after all, from its first attempt on, if its dead letter is being replayed right here.
UPDATE outbox SET state = 'pending', attempts = 0, waits = 0, reason = NULL
WHERE id = :id AND state = 'buried' AND EXISTS (SELECT 1 FROM dead WHERE id = :dead_id AND state = 'replaying')
RETURNING destination
