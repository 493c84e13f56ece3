-- PostgreSQL: rows that can be found, and what by; a second indexer that has one of them too collides here.
INSERT INTO search_rows (session_id, n, owner, grams)
SELECT :session_id, added.n, :owner, array_to_tsvector(string_to_array(added.grams, ' '))
FROM unnest(CAST(:numbers AS BIGINT[]), CAST(:grams AS TEXT[])) AS added (n, grams)
