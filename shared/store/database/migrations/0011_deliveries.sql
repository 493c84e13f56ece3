-- Who began the last attempt at a part, and how many attempts the platform answered with a request to wait.
ALTER TABLE outbox ADD COLUMN taken_by TEXT;
ALTER TABLE outbox ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;
