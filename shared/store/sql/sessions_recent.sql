-- Sessions by last activity.
SELECT id, session_key, version, message_count, created_at, updated_at, title, parent_id, ended_at, end_reason FROM sessions WHERE session_key NOT LIKE 'control:%' ORDER BY updated_at DESC LIMIT :limit
