-- Titles. Tables: sessions, messages.

-- name: title_if_none
-- Give a session a title, unless it has one: a title that a person chose stays. And unless words of a forgotten person were removed
-- from it, which the title may be made of: by now, or by the transaction that this one had to wait for.
UPDATE sessions SET title = :title
WHERE id = :session_id AND title IS NULL AND turn_id NOT LIKE 'forget!_%' ESCAPE '!'
  AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.session_id = :session_id AND messages.text = :removed)
RETURNING id
