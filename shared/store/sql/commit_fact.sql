-- Remember a fact, if the session is ours.
INSERT INTO facts (scope, name, value)
SELECT :scope, :name, :value
FROM {{ours}} WHERE true
ON CONFLICT (scope, name) DO UPDATE SET value = excluded.value
