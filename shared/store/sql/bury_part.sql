-- [buried] A part that will not be sent.
UPDATE outbox SET state = 'buried', reason = :reason WHERE id = :id AND state IN ('pending', 'sending')
RETURNING id
