-- The session a key talks to, what is known of it, the end of its transcript unless a given turn left it so, and how an inbound stands.
SELECT routes.session_id, routes.done_seq, sessions.version, sessions.turn_id, sessions.message_count,
       sessions.updated_at, sessions.owner,
       CASE WHEN sessions.turn_id = :left_by THEN NULL ELSE (
           SELECT CAST({{json_list}}({{json_row}}(role, text, data, inbound_id)) AS TEXT) FROM (
               SELECT role, text, data, inbound_id FROM messages
               WHERE session_id = routes.session_id AND active = 1
               ORDER BY n DESC LIMIT :limit
           ) AS newest
       ) END AS rows,
       (SELECT CAST({{json_object}}(name, value) AS TEXT) FROM facts WHERE scope = routes.session_id) AS facts,
       inbox.state, inbox.attempts, {{now_ms}} - inbox.outage_since AS outage_ms
FROM (SELECT 1) AS always
LEFT JOIN routes ON routes.session_key = :session_key
LEFT JOIN sessions ON sessions.id = routes.session_id
LEFT JOIN inbox ON inbox.id = :id
