-- What a conversation is called, where it came from and how it ended.
ALTER TABLE sessions ADD COLUMN title TEXT;
ALTER TABLE sessions ADD COLUMN parent_id TEXT;
ALTER TABLE sessions ADD COLUMN ended_at BIGINT;
ALTER TABLE sessions ADD COLUMN end_reason TEXT;
