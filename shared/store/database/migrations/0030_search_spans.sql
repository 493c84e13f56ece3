-- PostgreSQL finds rows by signatures, each of several rows of a session: see shared/store/spans.py. `indexed`: up to which row a
-- session has them. A housekeeper makes those of older rows step by step. `search_rows` and `sessions.searched` are still what an
-- older version reads and writes; the housekeeper empties the table when nothing is left to index.
-- [postgres]
ALTER TABLE sessions ADD COLUMN indexed BIGINT NOT NULL DEFAULT 0;
DROP INDEX sessions_unsearched;
CREATE INDEX sessions_unindexed ON sessions (owner, id) WHERE message_count > indexed AND owner IS NOT NULL;
CREATE TABLE search_spans (
    id {{serial}},                   -- a new one with every change: the newest are looked through first
    first_n BIGINT NOT NULL,
    last_n BIGINT NOT NULL,
    since_n BIGINT NOT NULL,         -- rows before it are too old to be found
    size_class SMALLINT NOT NULL,    -- 1: the smallest size of signatures
    session_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    bits VARBIT NOT NULL,
    UNIQUE (session_id, first_n)
);
ALTER TABLE search_spans ALTER COLUMN bits SET STORAGE PLAIN;
CREATE INDEX search_spans_of_owner ON search_spans (owner, id);
