-- Sessions with rows that are not indexed for search yet.
SELECT id, owner, searched, message_count FROM sessions
WHERE message_count > searched AND owner IS NOT NULL
ORDER BY owner, id LIMIT :limit
