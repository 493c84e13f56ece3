-- What is still known of a message when its time in the journal is over: enough to recognise it, and to say how it ended. A
-- housekeeper moves rows here from the journal, some at a time: see shared/store/retention.sql.
CREATE TABLE known_messages (
    digest {{digest}} PRIMARY KEY,   -- message_digest of the message's id
    received_at BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    attempts INTEGER NOT NULL,
    platform TEXT NOT NULL,
    state TEXT,                      -- NULL: answered, as nearly all are
    session_key TEXT,                -- of the API's messages alone: callers are known by it
    reason TEXT
) {{clustered}};

-- Emptied journal rows that are still to be moved, or that something refers to.
CREATE INDEX inbox_emptied ON inbox (finished_at, id) WHERE payload = '' AND state <> 'pending';

-- The first 128 bits of the SHA-256 of an id. In SQLite every connection has a function of that name. STABLE, because
-- convert_to is no more than that: so PostgreSQL puts the expression in the place of the call.
-- [postgres]
CREATE FUNCTION message_digest(id TEXT) RETURNS UUID LANGUAGE SQL STABLE PARALLEL SAFE
AS 'SELECT CAST(left(encode(sha256(convert_to(id, ''UTF8'')), ''hex''), 32) AS UUID)';
