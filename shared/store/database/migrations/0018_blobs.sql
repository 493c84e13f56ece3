-- Which sessions refer to which blobs (shared/blobs): in a row of the transcript, or in a reply. A blob without a row here is
-- removed from its place some time after it was last kept.
CREATE TABLE blob_references (
    digest TEXT NOT NULL,            -- SHA-256 of the blob in hexadecimal
    session_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (digest, session_id)
) {{clustered}};
CREATE INDEX blob_references_session ON blob_references (session_id);
