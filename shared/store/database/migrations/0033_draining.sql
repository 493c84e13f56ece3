-- Redis servers that are drained: they get no keys, and may be taken out of REDIS_URL when they are empty.
CREATE TABLE draining_redis (
    name TEXT PRIMARY KEY,           -- host, port and database, without user, password and options
    who TEXT NOT NULL,
    since BIGINT NOT NULL
);

-- The oldest message and, by platform, the oldest reply that has not ended, however many wait. Both stay as small as what waits.
CREATE INDEX inbox_oldest ON inbox (received_at) WHERE state = 'pending';
CREATE INDEX outbox_oldest ON outbox (platform, created_at) WHERE state IN ('pending', 'sending');
