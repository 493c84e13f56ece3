-- Whose a session is: see shared/owner.py. Unset: it is older than this column, and gets its owner with its next commit.
ALTER TABLE sessions ADD COLUMN owner TEXT;
CREATE INDEX sessions_of_owner ON sessions (owner, updated_at);
