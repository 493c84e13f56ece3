-- Take rows out of the conversation without deleting them, if the session is ours.
UPDATE messages SET active = 0
FROM {{ours}} WHERE session_id = :session_id AND n >= :from_n AND n <= :to_n AND active = 1
