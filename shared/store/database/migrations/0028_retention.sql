-- What retention removes is found by index. Each index has only rows that retention may remove or empty, so a plain answer
-- pays for one entry: that of its journal row, when the row ends.
CREATE INDEX inbox_ended ON inbox (finished_at) WHERE state <> 'pending' AND payload <> '';
CREATE INDEX messages_superseded ON messages (created_at) WHERE active = 0;
CREATE INDEX sessions_ended ON sessions (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX blob_references_created ON blob_references (created_at);
