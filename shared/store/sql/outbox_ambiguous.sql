-- Nobody knows whether an earlier attempt arrived.
UPDATE outbox SET ambiguous = 1 WHERE id = :id
