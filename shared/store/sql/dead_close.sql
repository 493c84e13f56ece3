-- A dead letter that somebody has dealt with.
UPDATE dead SET state = :state WHERE id = :id AND state = 'open' RETURNING id
