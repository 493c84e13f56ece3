-- What the dashboard lists page by page: open questions, and schedules.
CREATE INDEX asks_waiting ON asks (created_at, id) WHERE state = 'open';
CREATE INDEX schedules_created ON schedules (created_at, id);
