-- SQLite: what it is found by.
INSERT INTO search_grams (rowid, grams)
SELECT id, :grams FROM search_rows
WHERE session_id = :session_id AND n = :n
  AND EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND searched = :upto)
