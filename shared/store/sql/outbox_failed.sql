-- It did not go out this time.
UPDATE outbox SET state = :state, reason = :reason WHERE id = :id AND state IN ('pending', 'sending')
