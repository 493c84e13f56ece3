-- Conversations by last activity (control messages are none), each with its first words: by index, whatever the length of the transcripts.
SELECT id, session_key, version, message_count, created_at, updated_at, title, parent_id, ended_at, end_reason,
       COALESCE(
           (SELECT SUBSTR(text, 1, 500) FROM messages
            WHERE session_id = sessions.id AND n <= 20 AND active = 1 AND role = 'user'
              AND data NOT LIKE '%"command":%' AND data NOT LIKE '%"hidden":%'
            ORDER BY n LIMIT 1),
           (SELECT SUBSTR(text, 1, 500) FROM messages
            WHERE session_id = sessions.id AND n <= 20 AND active = 1 AND role = 'assistant'
              AND data NOT LIKE '%"command":%' AND data NOT LIKE '%"hidden":%'
            ORDER BY n LIMIT 1)) AS preview
FROM sessions WHERE updated_at >= :since AND session_key NOT LIKE 'control:%' ORDER BY updated_at DESC LIMIT :limit
