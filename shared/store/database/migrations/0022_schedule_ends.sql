-- When a schedule was resumed last: what failed before that counts no more.
ALTER TABLE schedules ADD COLUMN resumed_at BIGINT NOT NULL DEFAULT 0;

-- Slots that are old and schedules that have ended are found by these.
CREATE INDEX schedule_fires_created ON schedule_fires (created_at);
CREATE INDEX schedules_ended ON schedules (look_at) WHERE state = 'ended';
