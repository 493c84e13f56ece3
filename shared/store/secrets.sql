-- Secrets. Table: facts, in a scope of their own.

-- name: fact_if_none
-- Keep a fact, unless there is one of that name: of several processes that write it, the first wins.
INSERT INTO facts (scope, name, value) VALUES (:scope, :name, :value)
ON CONFLICT (scope, name) DO NOTHING
