-- How an imported conversation stands here.
SELECT version, turn_id, message_count FROM sessions WHERE id = :session_id
