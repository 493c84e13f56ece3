-- What an overview shows. Tables: inbox, outbox, dead. Nothing is written here. Counts stop at a bound, and lists are pages
-- that an index gives, so that a look costs the same however much waits.

-- name: overview_counts
-- How many inbounds, parts and dead letters wait, each up to a bound; since when those that were counted wait; and the number
-- of the newest part, which grows with every reply.
SELECT (SELECT COUNT(*) FROM (SELECT 1 AS one FROM inbox WHERE state = 'pending' LIMIT :bound) AS counted) AS inbound_waiting,
       (SELECT MIN(received_at) FROM
           (SELECT received_at FROM inbox WHERE state = 'pending' LIMIT :bound) AS counted) AS inbound_oldest,
       (SELECT COUNT(*) FROM
           (SELECT 1 AS one FROM outbox WHERE state IN ('pending', 'sending') LIMIT :bound) AS counted) AS outbox_waiting,
       (SELECT MIN(created_at) FROM
           (SELECT created_at FROM outbox WHERE state IN ('pending', 'sending') LIMIT :bound) AS counted) AS outbox_oldest,
       (SELECT COUNT(*) FROM (SELECT 1 AS one FROM dead WHERE state = 'open' LIMIT :bound) AS counted) AS dead_open,
       (SELECT COALESCE(MAX(id), 0) FROM outbox) AS newest_part

-- name: waiting_of_keys
-- For each of some keys: how many messages wait, the time of the oldest, and the most attempts that one of them has had.
SELECT session_key, COUNT(*) AS waiting, MIN(received_at) AS oldest, MAX(attempts) AS attempts FROM inbox
-- [sqlite]
WHERE state = 'pending' AND session_key IN (SELECT value FROM json_each(:keys))
-- [postgres]
WHERE state = 'pending' AND session_key IN (SELECT jsonb_array_elements_text(:keys))
-- [both]
GROUP BY session_key

-- name: parts_open
-- Parts that wait or are being sent, by destination, after a given place.
SELECT id, destination, session_key, platform, state, attempts, ambiguous, receipt, reason, created_at, sending_at, sent_at
FROM outbox
WHERE state IN ('pending', 'sending') AND (destination, id) > (:destination, :id)
ORDER BY destination, id LIMIT :limit

-- name: parts_flagged
-- Parts of which nobody knows whether an attempt arrived, and parts that were given up on, before a given one, newest first.
SELECT id, destination, session_key, platform, state, attempts, ambiguous, receipt, reason, created_at, sending_at, sent_at
-- [sqlite]
FROM outbox INDEXED BY outbox_flagged
-- [postgres]
FROM outbox
-- [both]
WHERE (ambiguous = 1 OR state = 'buried') AND id < :before
ORDER BY id DESC LIMIT :limit

-- name: parts_of_conversation
-- The newest parts of one conversation.
SELECT id, destination, session_key, platform, state, attempts, ambiguous, receipt, reason, created_at, sending_at, sent_at
FROM outbox WHERE session_key = :session_key ORDER BY id DESC LIMIT :limit

-- name: dead_page
-- Dead letters in one state before a given one, newest first, without their payloads.
SELECT id, kind, ref, session_key, reason, detail, attempts, state, created_at FROM dead
WHERE state = :state AND id < :before ORDER BY id DESC LIMIT :limit

-- name: dead_of_conversation
-- The newest dead letters of one conversation.
SELECT id, kind, ref, session_key, reason, detail, attempts, state, created_at FROM dead
WHERE session_key = :session_key ORDER BY created_at DESC LIMIT :limit

-- name: sessions_before
-- Sessions by last activity before a given time, without their texts.
SELECT id, session_key, version, message_count, created_at, updated_at, title, parent_id, ended_at, end_reason
FROM sessions WHERE updated_at < :before ORDER BY updated_at DESC LIMIT :limit

-- name: sessions_of_person
-- Sessions of one owner by last activity, without their texts.
SELECT id, session_key, version, message_count, created_at, updated_at, title, parent_id, ended_at, end_reason
FROM sessions WHERE owner = :owner ORDER BY updated_at DESC LIMIT :limit
