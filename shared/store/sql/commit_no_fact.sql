-- Forget a fact, if the session is ours.
DELETE FROM facts
WHERE scope = :scope AND name = :name AND EXISTS (SELECT 1 FROM {{ours}})
