-- People who were let in by a pairing code.
CREATE TABLE paired (
    platform TEXT NOT NULL,
    user_id TEXT NOT NULL,
    user_alt TEXT,                   -- the same person's other id on the platform
    user_name TEXT NOT NULL,
    approved_by TEXT NOT NULL,
    approved_at BIGINT NOT NULL,
    PRIMARY KEY (platform, user_id)
);
CREATE INDEX paired_alt ON paired (platform, user_alt);

-- People who asked for a code. Rows older than an hour are removed with the next request on their platform.
CREATE TABLE pairing_requests (
    platform TEXT NOT NULL,
    user_id TEXT NOT NULL,
    user_alt TEXT,
    user_name TEXT NOT NULL,
    salt TEXT NOT NULL,              -- 16 random bytes in hexadecimal; also names the part that tells the person
    digest TEXT NOT NULL,            -- SHA-256 of salt and code in hexadecimal; empty: the person was told to come later
    asked_at BIGINT NOT NULL,
    PRIMARY KEY (platform, user_id)
);

-- How many wrong codes were given on a platform, and until when its pairing is locked.
CREATE TABLE pairing_locks (
    platform TEXT PRIMARY KEY,
    wrong INTEGER NOT NULL,
    locked_until BIGINT NOT NULL
);
