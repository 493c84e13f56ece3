-- Keep a note of an older gateway's memory files, if it was not brought along before and its owner does not have it.
INSERT INTO notes (owner, text, session_id, created_at)
SELECT :owner, :text, :scope, :now FROM {{noted}}
WHERE NOT EXISTS (SELECT 1 FROM notes WHERE notes.owner = :owner AND notes.text = :text)
