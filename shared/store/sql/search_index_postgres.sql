-- PostgreSQL: index rows of some sessions and say how far each is indexed. Sessions that another indexer or a turn is writing to, or that another indexer has moved on, are left out.
WITH claimed AS MATERIALIZED (
    SELECT sessions.id, sessions.owner, CAST(value ->> 'upto' AS BIGINT) AS upto
    FROM {{each}}(:sessions)
    JOIN sessions ON sessions.id = value ->> 'id' AND sessions.searched = CAST(value ->> 'after' AS BIGINT)
    FOR NO KEY UPDATE OF sessions SKIP LOCKED),
added AS (
    INSERT INTO search_rows (session_id, n, owner, grams)
    SELECT claimed.id, found.n, claimed.owner, array_to_tsvector(string_to_array(found.grams, ' '))
    FROM unnest(CAST(:session_id AS TEXT[]), CAST(:n AS BIGINT[]), CAST(:grams AS TEXT[])) AS found (id, n, grams)
    JOIN claimed ON claimed.id = found.id)
UPDATE sessions SET searched = claimed.upto FROM claimed WHERE sessions.id = claimed.id
