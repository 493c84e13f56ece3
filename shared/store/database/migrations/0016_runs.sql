-- The work of a turn that calls tools, from its first call to its commit.
CREATE TABLE runs (
    id TEXT PRIMARY KEY,             -- follows from the inbound, so it is the same on every attempt
    session_id TEXT NOT NULL,
    session_key TEXT NOT NULL,
    inbound_id TEXT NOT NULL,
    holder TEXT NOT NULL,            -- the token of the lease whose steps count; others are refused
    created_at BIGINT NOT NULL
) {{clustered}};
CREATE INDEX runs_of_session ON runs (session_id);
CREATE INDEX runs_created ON runs (created_at);

-- What a run has done so far, in order.
CREATE TABLE steps (
    run_id TEXT NOT NULL,
    n INTEGER NOT NULL,
    kind TEXT NOT NULL,              -- response: a row of the model; call: one of its calls; lone: a call without a row
    call_id TEXT NOT NULL,           -- the model's id of the call; empty for a response
    name TEXT NOT NULL,              -- of the tool; empty for a response
    arguments TEXT NOT NULL,
    effect TEXT NOT NULL,            -- read, keyed or write; empty until the call begins
    state TEXT NOT NULL,             -- planned, begun or done
    body TEXT NOT NULL,              -- JSON: the row of a response, the outcome of a call; empty until there is one
    begun_at BIGINT,
    ended_at BIGINT,
    PRIMARY KEY (run_id, n)
) {{clustered}};
