-- Another session of an owner with a given title.
SELECT id FROM sessions
WHERE owner = :owner AND id <> :but AND LOWER(title) = LOWER(CAST(:title AS TEXT)) LIMIT 1
