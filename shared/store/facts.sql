-- Facts. Table: facts (scope, name, value).

-- name: facts_of
-- All facts of a scope.
SELECT name, value FROM facts WHERE scope = :scope
