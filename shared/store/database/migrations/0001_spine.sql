-- The journal of accepted inbounds, and where each one stands.
CREATE TABLE inbox (
    id TEXT PRIMARY KEY,             -- follows from platform, account and event id: a redelivery collides here
    event_id TEXT NOT NULL,
    platform TEXT NOT NULL,
    session_key TEXT NOT NULL,
    seq BIGINT NOT NULL,             -- per key, given at journal time: the order of the conversation
    payload TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    reason TEXT,
    turn_id TEXT,
    received_at BIGINT NOT NULL,
    finished_at BIGINT
);
CREATE INDEX inbox_pending ON inbox (session_key, seq) WHERE state = 'pending';

-- Which session a key talks to, and how far its mail has come.
CREATE TABLE routes (
    session_key TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    last_seq BIGINT NOT NULL,        -- given out
    done_seq BIGINT NOT NULL,        -- everything up to here has ended
    created_at BIGINT NOT NULL
);

-- A conversation. Every writer of its transcript compares and sets `version`, and signs with `turn_id`.
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    session_key TEXT NOT NULL,
    version BIGINT NOT NULL,
    turn_id TEXT NOT NULL,
    message_count BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX sessions_updated ON sessions (updated_at);

-- The transcript.
CREATE TABLE messages (
    session_id TEXT NOT NULL,
    n BIGINT NOT NULL,
    turn_id TEXT NOT NULL,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    data TEXT NOT NULL,
    inbound_id TEXT,
    active SMALLINT NOT NULL DEFAULT 1,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (session_id, n)
) {{clustered}};

-- One row per commit: who moved which session on, when.
CREATE TABLE turns (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    session_key TEXT NOT NULL,
    version BIGINT NOT NULL,
    outcome TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    worker TEXT NOT NULL,
    claimed_at BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    committed_at BIGINT NOT NULL
);

-- Replies decided but not yet known to be delivered, and what became of them.
CREATE TABLE outbox (
    id {{serial}},
    idempotency_key TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    session_key TEXT NOT NULL,
    destination TEXT NOT NULL,
    platform TEXT NOT NULL,
    payload TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    ambiguous SMALLINT NOT NULL DEFAULT 0,
    receipt TEXT,
    reason TEXT,
    created_at BIGINT NOT NULL,
    sending_at BIGINT,
    sent_at BIGINT,
    UNIQUE (turn_id, ordinal)
);
CREATE INDEX outbox_session ON outbox (session_key, id);
CREATE INDEX outbox_open ON outbox (destination, id) WHERE state IN ('pending', 'sending');

-- What was set aside, and why.
CREATE TABLE dead (
    id {{serial}},
    kind TEXT NOT NULL,              -- inbound, reply, mail or request
    ref TEXT NOT NULL,
    session_key TEXT,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    payload TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL,             -- open, replayed or dropped
    created_at BIGINT NOT NULL
);
