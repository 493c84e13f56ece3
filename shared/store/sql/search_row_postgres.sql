-- PostgreSQL: a row that can be found, and what by; a second indexer that has it too collides here.
INSERT INTO search_rows (session_id, n, grams)
VALUES (:session_id, :n, array_to_tsvector(string_to_array(:grams, ' ')))
