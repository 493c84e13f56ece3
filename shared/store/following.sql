-- A chat that got a new id. Tables: routes, sessions, turns.

-- name: follow_routes
-- The keys of a chat, and the session that each talks to. Reads all routes: a chat gets a new id once in its life.
SELECT routes.session_key, routes.session_id, sessions.version
FROM routes JOIN sessions ON sessions.id = routes.session_id WHERE routes.session_key LIKE :pattern

-- name: follow_session
-- Move the session to the new key, if it is still at the version that was read: the compare-and-set.
UPDATE sessions SET version = version + 1, turn_id = :turn_id, session_key = :session_key
WHERE id = :session_id AND version = :version
RETURNING version

-- name: follow_route
-- Let the new key talk to the session, if this move won it and the key has no conversation of its own yet.
INSERT INTO routes (session_key, session_id, last_seq, done_seq, created_at)
SELECT :session_key, id, 0, 0, :now FROM sessions WHERE id = :session_id AND turn_id = :turn_id
ON CONFLICT (session_key) DO UPDATE SET session_id = excluded.session_id
WHERE NOT EXISTS (SELECT 1 FROM sessions AS own WHERE own.id = routes.session_id)
RETURNING session_key

-- name: follow_turn
-- Record the move as a turn, if this move won the session.
INSERT INTO turns (id, session_id, session_key, version, outcome, attempts, worker, claimed_at, started_at, committed_at)
SELECT turn_id, id, session_key, version, 'moved', 0, 'follow', :now, :now, :now
FROM sessions WHERE id = :session_id AND turn_id = :turn_id
