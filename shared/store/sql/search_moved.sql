-- A session is indexed up to here, if nobody else has moved that on.
UPDATE sessions SET searched = :upto WHERE id = :session_id AND searched = :after
