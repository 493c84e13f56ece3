-- The audit log. Table: audit (one row per action of an operator).

-- name: audit_begin
-- Write down an action before it is made.
INSERT INTO audit (at, who, role, action, target, outcome)
VALUES (:now, :who, :role, :action, :target, 'begun')
RETURNING id

-- name: audit_end
-- Write down how the action ended.
UPDATE audit SET outcome = :outcome WHERE id = :id

-- name: audit_list
-- Actions before a given one, newest first.
SELECT id, at, who, role, action, target, outcome FROM audit WHERE id < :before ORDER BY id DESC LIMIT :limit
