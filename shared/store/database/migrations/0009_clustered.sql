-- Keep rows where their keys are, in one tree instead of two: most of what a turn touches is found by its key.
-- [sqlite]
CREATE TABLE clustered_routes (
    session_key TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    last_seq BIGINT NOT NULL,
    done_seq BIGINT NOT NULL,
    created_at BIGINT NOT NULL
) {{clustered}};
INSERT INTO clustered_routes (session_key, session_id, last_seq, done_seq, created_at)
SELECT session_key, session_id, last_seq, done_seq, created_at FROM routes;
DROP TABLE routes;
ALTER TABLE clustered_routes RENAME TO routes;

CREATE TABLE clustered_sessions (
    id TEXT PRIMARY KEY,
    session_key TEXT NOT NULL,
    version BIGINT NOT NULL,
    turn_id TEXT NOT NULL,
    message_count BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    title TEXT,
    parent_id TEXT,
    ended_at BIGINT,
    end_reason TEXT,
    owner TEXT,
    searched BIGINT NOT NULL DEFAULT 0
) {{clustered}};
INSERT INTO clustered_sessions (id, session_key, version, turn_id, message_count, created_at, updated_at, title, parent_id,
                                ended_at, end_reason, owner, searched)
SELECT id, session_key, version, turn_id, message_count, created_at, updated_at, title, parent_id,
       ended_at, end_reason, owner, searched FROM sessions;
DROP TABLE sessions;
ALTER TABLE clustered_sessions RENAME TO sessions;
CREATE INDEX sessions_updated ON sessions (updated_at);
CREATE INDEX sessions_of_owner ON sessions (owner, updated_at);
CREATE INDEX sessions_unsearched ON sessions (owner, id) WHERE message_count > searched AND owner IS NOT NULL;

CREATE TABLE clustered_turns (
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
) {{clustered}};
INSERT INTO clustered_turns (id, session_id, session_key, version, outcome, attempts, worker, claimed_at, started_at, committed_at)
SELECT id, session_id, session_key, version, outcome, attempts, worker, claimed_at, started_at, committed_at FROM turns;
DROP TABLE turns;
ALTER TABLE clustered_turns RENAME TO turns;
