-- Titles. Table: sessions.

-- name: title_if_none
-- Give a session a title, unless it has one: a title that a person chose stays.
UPDATE sessions SET title = :title WHERE id = :session_id AND title IS NULL RETURNING id
