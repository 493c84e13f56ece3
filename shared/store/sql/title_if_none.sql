-- Give a session a title, unless it has one: what a person chose stays.
UPDATE sessions SET title = :title WHERE id = :session_id AND title IS NULL RETURNING id
