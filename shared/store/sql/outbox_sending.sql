-- Say, before the call, that a part is about to be sent. Only one attempt can say so.
UPDATE outbox SET state = 'sending', attempts = attempts + 1, sending_at = :now
WHERE id = :id AND attempts = :attempts AND state IN ('pending', 'sending')
RETURNING id
