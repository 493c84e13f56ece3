-- How much waits. Tables: inbox, outbox, dead. Nothing is written here.

-- name: backlog
-- How many inbounds, parts and dead letters wait, and since when.
SELECT (SELECT COUNT(*) FROM inbox WHERE state = 'pending') AS inbound_waiting,
       (SELECT MIN(received_at) FROM inbox WHERE state = 'pending') AS inbound_oldest,
       (SELECT COUNT(*) FROM outbox WHERE state IN ('pending', 'sending')) AS outbox_waiting,
       (SELECT MIN(created_at) FROM outbox WHERE state IN ('pending', 'sending')) AS outbox_oldest,
       (SELECT COUNT(*) FROM dead WHERE state = 'open') AS dead_open
