-- What makes a dead letter the same as one that is there: recorded again, it is not added. Unset: it may be there twice.
ALTER TABLE dead ADD COLUMN once TEXT;
CREATE UNIQUE INDEX dead_once ON dead (once);
CREATE INDEX dead_of_key ON dead (session_key, created_at);
