-- The parts of one session after a given one, for readers that follow it, and whether no transaction was open when it was read.
SELECT id, turn_id, ordinal, payload,
       pg_snapshot_xmin(pg_current_snapshot()) = pg_snapshot_xmax(pg_current_snapshot()) AS settled
FROM outbox WHERE session_key = :session_key AND id > :after AND id <= :until ORDER BY id LIMIT :limit
