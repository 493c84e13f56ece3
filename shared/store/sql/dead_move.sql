-- Move a dead letter from one state to another, once.
UPDATE dead SET state = :after WHERE id = :id AND state = :before RETURNING id
