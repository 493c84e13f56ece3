-- Delete a note, if the session is ours.
DELETE FROM notes
WHERE owner = :owner AND id = :note_id AND EXISTS (SELECT 1 FROM {{ours}})
