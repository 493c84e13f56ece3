-- Up to which row a session has been indexed for search, and which sessions have more. What wrote the rows does not matter.
ALTER TABLE sessions ADD COLUMN searched BIGINT NOT NULL DEFAULT 0;
CREATE INDEX sessions_unsearched ON sessions (owner, id) WHERE message_count > searched AND owner IS NOT NULL;

-- The rows that can be found, each with what it is found by: see shared/store/grams.py.
-- [sqlite]
CREATE TABLE search_rows (
    id {{serial}},
    session_id TEXT NOT NULL,
    n BIGINT NOT NULL,
    UNIQUE (session_id, n)
);
CREATE VIRTUAL TABLE search_grams USING fts5 (
    grams, content = '', columnsize = 0, detail = none, tokenize = "ascii tokenchars '_^@'"
);
-- [postgres]
CREATE TABLE search_rows (
    id {{serial}},
    session_id TEXT NOT NULL,
    n BIGINT NOT NULL,
    owner TEXT NOT NULL,
    grams TSVECTOR NOT NULL,
    UNIQUE (session_id, n)
);
CREATE INDEX search_grams ON search_rows USING gin (grams);
CREATE INDEX search_newest ON search_rows (owner, id);
