-- It did not go out this time. Nothing happens if this was said before, or if another attempt began since.
UPDATE outbox SET state = 'pending', reason = :reason, waits = waits + :waits
WHERE id = :id AND state = 'sending' AND attempts = :attempt
