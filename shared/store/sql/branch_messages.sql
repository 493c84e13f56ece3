-- Copy the rows of the conversation up to a given one into its branch, if the session is ours.
INSERT INTO messages (session_id, n, turn_id, role, text, data, inbound_id, created_at)
SELECT :branch_id, said.n, said.turn_id, said.role, said.text, said.data, said.inbound_id, said.created_at
FROM {{ours}}, messages AS said
WHERE said.session_id = :session_id AND said.active = 1 AND said.n <= :rows
