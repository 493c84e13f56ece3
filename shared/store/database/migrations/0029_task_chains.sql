-- How many messages that nobody wrote led to a task, one from another: results of tasks, and steps towards a goal.
ALTER TABLE tasks ADD COLUMN in_a_row INTEGER NOT NULL DEFAULT 0;
