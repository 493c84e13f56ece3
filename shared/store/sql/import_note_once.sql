-- [noted] Write down that a note was brought along, unless it was before. The token tells this time from a former one.
INSERT INTO facts (scope, name, value) VALUES (:scope, :name, :token)
ON CONFLICT (scope, name) DO NOTHING
RETURNING name
