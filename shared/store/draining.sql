-- Redis servers that are drained. Table: draining_redis.

-- name: draining_list
-- The servers that are drained, the longest first.
SELECT name, who, since FROM draining_redis ORDER BY since, name

-- name: draining_add
-- Begin to drain a server. Returns nothing if that had begun before.
INSERT INTO draining_redis (name, who, since) VALUES (:name, :who, :now) ON CONFLICT (name) DO NOTHING RETURNING name

-- name: draining_remove
-- Let a server have keys again, or forget it. Returns nothing if it was not drained.
DELETE FROM draining_redis WHERE name = :name RETURNING name
