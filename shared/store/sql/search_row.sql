-- SQLite: a row that can be found, of a session that is there and indexed so far; a second indexer that has it too collides here.
INSERT INTO search_rows (session_id, n)
SELECT :session_id, :n WHERE EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND searched = :upto)
