-- SQLite: forget what a row of a session that is no more was found by. The index keeps no text: it has to be told.
INSERT INTO search_grams (search_grams, rowid, grams)
SELECT 'delete', :place, :grams WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id)
