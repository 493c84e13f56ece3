-- The newest notes of an owner.
SELECT id, text, created_at FROM notes WHERE owner = :owner ORDER BY id DESC LIMIT :limit
