-- The conversations of a chat. Table: routes (one row per session key).

-- name: keys_in_place
-- The session key of a chat, and those that add a thread, a user or a workspace to it: they go on with a colon.
SELECT session_key FROM routes
WHERE session_key = :first
-- [sqlite]
   OR (session_key > :tagged AND session_key < :beyond)
-- [postgres] By index where the database sorts by bytes (locale C); elsewhere this reads all keys.
   OR session_key LIKE :pattern
-- [both]
ORDER BY session_key LIMIT :limit
