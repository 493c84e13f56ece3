-- Redis servers that are drained: they get no keys, and may be taken out of REDIS_URL when they are empty.
CREATE TABLE draining_redis (
    name TEXT PRIMARY KEY,           -- host, port and database, without user, password and options
    who TEXT NOT NULL,
    since BIGINT NOT NULL
);
