-- Delete all notes of an owner, if the session is ours.
DELETE FROM notes
WHERE owner = :owner AND EXISTS (SELECT 1 FROM {{ours}})
