-- What is to run at its time. `claim` signs the transaction that changed the row last.
CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,             -- whose rights it has; empty: the operator's
    agent TEXT NOT NULL,
    rule TEXT NOT NULL,
    text TEXT NOT NULL,
    targets TEXT NOT NULL,           -- JSON list
    origin TEXT,                     -- JSON: the source that asked for it
    missed TEXT NOT NULL,
    overlap TEXT NOT NULL,
    window_ms BIGINT,
    state TEXT NOT NULL,             -- active, paused, ended
    reason TEXT,
    due_at BIGINT,                   -- the next slot
    look_at BIGINT NOT NULL,         -- when a housekeeper looks: the next slot, or later where slots that are late are spread
    late_since BIGINT,
    claim TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX schedules_due ON schedules (look_at) WHERE state = 'active';
CREATE INDEX schedules_of_owner ON schedules (owner, created_at);

-- One row per slot that has come, and per run by hand.
CREATE TABLE schedule_fires (
    schedule_id TEXT NOT NULL,
    slot BIGINT NOT NULL,
    manual SMALLINT NOT NULL,        -- 1: run by hand
    state TEXT NOT NULL,             -- fired, skipped, missed
    reason TEXT,
    inbound_id TEXT,                 -- of a slot that fired
    created_at BIGINT NOT NULL,
    PRIMARY KEY (schedule_id, slot, manual)
) {{clustered}};
