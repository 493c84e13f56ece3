-- SQLite: a row that can be found; a second indexer that has it too collides here.
INSERT INTO search_rows (session_id, n) VALUES (:session_id, :n)
