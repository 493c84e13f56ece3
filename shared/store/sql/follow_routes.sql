-- The keys of a chat, and the session each talks to. Reads all routes: a chat gets a new id once in its life.
SELECT routes.session_key, routes.session_id, sessions.version
FROM routes JOIN sessions ON sessions.id = routes.session_id WHERE routes.session_key LIKE :pattern
