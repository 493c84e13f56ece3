-- Keep a fact, unless there is one of that name: of several that say it, one is heard.
INSERT INTO facts (scope, name, value) VALUES (:scope, :name, :value)
ON CONFLICT (scope, name) DO NOTHING
