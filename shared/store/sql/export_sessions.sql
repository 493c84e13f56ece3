-- Sessions by id, a page at a time.
SELECT id, session_key, version, message_count, created_at, updated_at, title, parent_id, ended_at, end_reason FROM sessions
WHERE id > :after AND session_key NOT LIKE 'control:%' ORDER BY id LIMIT :limit
