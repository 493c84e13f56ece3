-- How often the user spoke in a session, and where a given one of those rows stands.
SELECT COUNT(*) AS spoken,
       (SELECT n FROM messages WHERE session_id = :session_id AND active = 1 AND role = 'user'
          AND data NOT LIKE '%"command":%' ORDER BY n LIMIT 1 OFFSET :skip) AS n
FROM messages WHERE session_id = :session_id AND active = 1 AND role = 'user' AND data NOT LIKE '%"command":%'
