-- What is worth keeping of conversations: added and deleted, never changed.
CREATE TABLE notes (
    id {{serial}},
    owner TEXT NOT NULL,             -- a person with an agent, or a session that several share
    text TEXT NOT NULL,
    session_id TEXT NOT NULL,        -- the conversation it comes from
    created_at BIGINT NOT NULL
);
CREATE INDEX notes_owner ON notes (owner, id);

-- Conversations that are over, and how looking for what is worth keeping went.
CREATE TABLE flushes (
    session_id TEXT PRIMARY KEY,
    session_key TEXT NOT NULL,
    state TEXT NOT NULL,             -- due, done, nothing (to keep), given_up, or live (it went on)
    upto BIGINT NOT NULL,            -- the rows up to here have been looked at
    tries INTEGER NOT NULL,          -- begun
    due_at BIGINT NOT NULL,
    turn_id TEXT NOT NULL            -- signs the last try
);
CREATE INDEX flushes_due ON flushes (due_at) WHERE state = 'due';
