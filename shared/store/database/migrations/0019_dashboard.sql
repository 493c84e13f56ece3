-- What operators did, and how it ended. Rows are added, and their outcome is filled in; nothing is removed.
CREATE TABLE audit (
    id {{serial}},
    at BIGINT NOT NULL,
    who TEXT NOT NULL,
    role TEXT NOT NULL,
    action TEXT NOT NULL,            -- `release key`, `replay dead letter` …
    target TEXT NOT NULL,            -- a key, a message, a dead letter, a session
    outcome TEXT NOT NULL            -- begun, done, or why it failed. Begun for long: the process ended meanwhile
);

-- Pages of the dashboard are read by index. Rows of both indexes are rare, so the pipeline pays nothing for them.
CREATE INDEX dead_by_state ON dead (state, id);
CREATE INDEX outbox_flagged ON outbox (id) WHERE ambiguous = 1 OR state = 'buried';
