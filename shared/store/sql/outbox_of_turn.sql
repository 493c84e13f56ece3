-- What a turn had to say, and what became of it.
SELECT id, ordinal, state, attempts, ambiguous, receipt, reason, created_at, sending_at, sent_at, payload
FROM outbox WHERE turn_id = :turn_id ORDER BY ordinal
