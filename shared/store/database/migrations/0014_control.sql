-- Control messages (/stop, /status) end by themselves and own no session. Remove the sessions that were kept for them, with
-- their rows. What was said stays in the journal and the outbox, how it ended in the journal and in turns, and the numbers of
-- their keys in routes. No such session was ever indexed for search or charged for, because none had an owner.
DELETE FROM messages WHERE session_id IN (SELECT id FROM sessions WHERE session_key LIKE 'control:%');
DELETE FROM facts WHERE scope IN (SELECT id FROM sessions WHERE session_key LIKE 'control:%');
DELETE FROM flushes WHERE session_id IN (SELECT id FROM sessions WHERE session_key LIKE 'control:%');
DELETE FROM notes WHERE session_id IN (SELECT id FROM sessions WHERE session_key LIKE 'control:%');
DELETE FROM sessions WHERE session_key LIKE 'control:%';
