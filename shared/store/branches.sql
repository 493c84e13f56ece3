-- Sessions that a key leaves its own for: a copy (/branch) or one that had ended (/resume). Tables: sessions, messages. Each
-- statement hangs on a commit: see batch.sql for `ours`.

-- name: branch_session
-- Open a session that continues another one as it was at a given row, if this turn won that one.
INSERT INTO sessions (id, session_key, version, turn_id, message_count, created_at, updated_at, parent_id, title, owner)
SELECT :branch_id, :session_key, 1, :turn_id, :rows, :now, :now, :session_id, :title, :owner
FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id

-- name: branch_messages
-- Copy the rows of a conversation up to a given one into its branch, if this turn won the session.
INSERT INTO messages (session_id, n, turn_id, role, text, data, inbound_id, created_at)
SELECT :branch_id, said.n, said.turn_id, said.role, said.text, said.data, said.inbound_id, said.created_at
FROM {{batch.ours}} JOIN messages AS said ON said.session_id = ours.id
WHERE ours.id = :session_id AND ours.turn_id = :turn_id AND said.active = 1 AND said.n <= :rows

-- name: reopen_session
-- Let a session go on that had ended, if this turn won the session that its key leaves.
UPDATE sessions SET ended_at = NULL, end_reason = NULL
WHERE id = :target AND EXISTS (SELECT 1 FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id)
