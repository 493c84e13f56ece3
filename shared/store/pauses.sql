-- Pauses. Tables: pause (what is held back now), pause_version (one row, which grows with every change).

-- name: pause_version
-- How many changes there were.
SELECT version FROM pause_version

-- name: pause_list
-- What is paused, the longest first.
SELECT scope, who, since FROM pause ORDER BY since, scope

-- name: pause_add
-- Begin a pause. Returns nothing if it had begun before.
INSERT INTO pause (scope, who, since) VALUES (:scope, :who, :now) ON CONFLICT (scope) DO NOTHING RETURNING scope

-- name: pause_remove
-- End a pause. Returns nothing if there was none.
DELETE FROM pause WHERE scope = :scope RETURNING scope

-- name: pause_changed
-- Count a change.
UPDATE pause_version SET version = version + 1
