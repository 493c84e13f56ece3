-- Background work: one row per task. Its words are in `text` while it runs; then only its name is left, until it is forgotten.
CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,              -- background, aside, agent
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    root_key TEXT NOT NULL,          -- the conversation of a chat in which all of it began
    parent_key TEXT NOT NULL,        -- the conversation that asked
    parent TEXT NOT NULL,            -- JSON: the source that the result is for
    asked_by TEXT NOT NULL,          -- JSON: the source whose rights it has
    owner TEXT NOT NULL,
    depth INTEGER NOT NULL,
    inbound_id TEXT NOT NULL,
    state TEXT NOT NULL,             -- running, done, failed, stopped, unknown
    asked_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at BIGINT
);
CREATE INDEX tasks_of_root ON tasks (root_key);
CREATE INDEX tasks_running ON tasks (created_at) WHERE state = 'running';
CREATE INDEX tasks_ended ON tasks (ended_at) WHERE ended_at IS NOT NULL;

-- When a conversation was told to stop last: a task that was asked for before then does not begin.
CREATE TABLE task_stops (
    root_key TEXT PRIMARY KEY,
    stopped_at BIGINT NOT NULL
);
