-- The platform has it.
UPDATE outbox SET state = 'sent', receipt = :receipt, sent_at = {{now_ms}}, reason = NULL WHERE id = :id
