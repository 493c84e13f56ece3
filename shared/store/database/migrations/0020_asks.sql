-- Whether a run waits for a person. Its steps stay until the answer takes it up.
ALTER TABLE runs ADD COLUMN state TEXT NOT NULL DEFAULT 'running';  -- running or parked

-- Questions to people. Each belongs to a run, and its answer is mail that takes the run up.
CREATE TABLE asks (
    id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    session_key TEXT NOT NULL,
    session_id TEXT NOT NULL,
    name TEXT NOT NULL,              -- the agent's own id of the question
    text TEXT NOT NULL,
    choices TEXT NOT NULL,           -- JSON list; empty: any words are an answer
    is_approval SMALLINT NOT NULL,   -- 1: a tool call waits for a yes
    source TEXT NOT NULL,            -- JSON: who was asked, and where
    state TEXT NOT NULL,             -- open, answered, expired or closed
    answer TEXT NOT NULL,            -- JSON: what was said; empty until then
    expires_at BIGINT,
    created_at BIGINT NOT NULL,
    ended_at BIGINT
) {{clustered}};
CREATE INDEX asks_open ON asks (session_key, created_at) WHERE state = 'open';
CREATE INDEX asks_due ON asks (expires_at) WHERE state = 'open';
CREATE INDEX asks_of_run ON asks (run_id);
CREATE INDEX asks_ended ON asks (ended_at);
CREATE INDEX asks_of_session ON asks (session_id);
