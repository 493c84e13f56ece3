-- Up to which of its steps a commit has counted what a run cost: what comes later is counted when the run ends.
ALTER TABLE runs ADD COLUMN counted INTEGER NOT NULL DEFAULT 0;
