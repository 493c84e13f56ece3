-- Say, before the call, that a part is about to be sent. Only one attempt can say so, and may say it again if it was not heard.
UPDATE outbox SET state = 'sending', attempts = :attempts + 1, sending_at = {{now_ms}}, taken_by = :lease
WHERE id = :id AND state IN ('pending', 'sending')
  AND (attempts = :attempts OR (attempts = :attempts + 1 AND taken_by = :lease))
RETURNING id
