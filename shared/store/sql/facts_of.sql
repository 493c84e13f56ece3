-- What is known in a scope.
SELECT name, value FROM facts WHERE scope = :scope
