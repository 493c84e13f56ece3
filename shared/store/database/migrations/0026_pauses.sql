-- What operators hold back for a while. A row is there as long as the pause lasts; the audit log has the history.
CREATE TABLE pause (
    scope TEXT PRIMARY KEY,          -- all, lane:…, platform:…, a chat (to:…) or a session key: shared/pause_scope.py
    who TEXT NOT NULL,
    since BIGINT NOT NULL
);

-- Grows with every pause and every end of one, so that Redis never goes back to older pauses.
CREATE TABLE pause_version (version BIGINT NOT NULL);
INSERT INTO pause_version (version) VALUES (0);
