-- What an overview shows. Tables: inbox, outbox, dead, asks, turns, pause. Nothing is written here. Counts stop at a bound, and lists are
-- pages that an index gives, so that a look costs the same however much waits.

-- name: overview_counts
-- How many inbounds, parts, dead letters and questions wait, each up to a bound; since when the oldest of all waits; and the number
-- of the newest part, which grows with every reply. An index gives the oldest part of each platform.
WITH RECURSIVE platforms (platform) AS (
    SELECT MIN(platform) FROM outbox WHERE state IN ('pending', 'sending')
    UNION ALL
    SELECT (SELECT MIN(outbox.platform) FROM outbox
            WHERE state IN ('pending', 'sending') AND outbox.platform > platforms.platform)
    FROM platforms WHERE platforms.platform IS NOT NULL
)
SELECT (SELECT COUNT(*) FROM (SELECT 1 AS one FROM inbox WHERE state = 'pending' LIMIT :bound) AS counted) AS inbound_waiting,
       (SELECT MIN(received_at) FROM inbox WHERE state = 'pending') AS inbound_oldest,
       (SELECT COUNT(*) FROM
           (SELECT 1 AS one FROM outbox WHERE state IN ('pending', 'sending') LIMIT :bound) AS counted) AS outbox_waiting,
       (SELECT MIN(oldest) FROM
           (SELECT (SELECT MIN(created_at) FROM outbox
                    WHERE state IN ('pending', 'sending') AND outbox.platform = platforms.platform) AS oldest
            FROM platforms) AS by_platform) AS outbox_oldest,
       (SELECT COUNT(*) FROM (SELECT 1 AS one FROM dead WHERE state = 'open' LIMIT :bound) AS counted) AS dead_open,
       (SELECT COUNT(*) FROM (SELECT 1 AS one FROM asks WHERE state = 'open' LIMIT :bound) AS counted) AS asks_open,
       (SELECT COALESCE(MAX(id), 0) FROM outbox) AS newest_part

-- name: parts_oldest
-- For each platform, the time of the oldest part that waits or is being sent and that no pause holds. Of parts that wait, so
-- many of the oldest are looked at: more of them may be a paused chat's. None of a platform that is paused as a whole.
WITH RECURSIVE platforms (platform) AS (
    SELECT MIN(platform) FROM outbox WHERE state IN ('pending', 'sending')
    UNION ALL
    SELECT (SELECT MIN(outbox.platform) FROM outbox
            WHERE state IN ('pending', 'sending') AND outbox.platform > platforms.platform)
    FROM platforms WHERE platforms.platform IS NOT NULL
)
SELECT platform, (
    SELECT MIN(created_at) FROM (
        SELECT created_at, destination FROM outbox
        WHERE state IN ('pending', 'sending') AND outbox.platform = platforms.platform
        ORDER BY created_at LIMIT :bound
    ) AS waiting
    WHERE NOT EXISTS (SELECT 1 FROM pause WHERE scope = destination)
) AS oldest
FROM platforms
WHERE platform IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM pause WHERE scope IN ('all', 'lane:deliveries', 'platform:' || platforms.platform))

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
-- Sessions by last activity before a given place in that order, without their texts. Sessions of one millisecond are ordered
-- by id, so that none is left out where a page ends between them.
SELECT id, session_key, version, message_count, created_at, updated_at, title, parent_id, ended_at, end_reason
FROM sessions WHERE (updated_at, id) < (:before, :before_id) ORDER BY updated_at DESC, id DESC LIMIT :limit

-- name: sessions_of_person
-- Sessions of one owner by last activity, without their texts.
SELECT id, session_key, version, message_count, created_at, updated_at, title, parent_id, ended_at, end_reason
FROM sessions WHERE owner = :owner ORDER BY updated_at DESC LIMIT :limit

-- name: destinations_open
-- Destinations with parts that wait, or that were given up while their dead letter is open, in order, after a given one. Of
-- those that were given up, the newest are looked at.
SELECT destination, SUM(waiting) AS waiting, SUM(ambiguous) AS ambiguous, SUM(buried) AS buried, MIN(created_at) AS oldest
FROM (
    SELECT destination, 1 AS waiting, ambiguous, 0 AS buried, created_at
    FROM outbox WHERE state IN ('pending', 'sending') AND destination > :after
    UNION ALL
    SELECT destination, 0, ambiguous, 1, created_at
    FROM (
        SELECT id, destination, session_key, ambiguous, state, created_at
-- [sqlite]
        FROM outbox INDEXED BY outbox_flagged
-- [postgres]
        FROM outbox
-- [both]
        WHERE ambiguous = 1 OR state = 'buried' ORDER BY id DESC LIMIT :bound
    ) AS flagged
    WHERE state = 'buried' AND destination > :after AND EXISTS (
        SELECT 1 FROM dead
        WHERE dead.session_key = flagged.session_key AND kind = 'reply' AND ref = CAST(flagged.id AS TEXT) AND dead.state = 'open')
) AS parts
GROUP BY destination ORDER BY destination LIMIT :limit

-- name: parts_buried
-- The newest parts of one destination that were given up, each with its dead letter, if that is open.
SELECT flagged.id, destination, flagged.session_key, platform, flagged.state, flagged.attempts, ambiguous, receipt,
       flagged.reason, flagged.created_at, sending_at, sent_at, dead.id AS letter
FROM (
    SELECT id, destination, session_key, platform, state, attempts, ambiguous, receipt, reason, created_at, sending_at, sent_at
-- [sqlite]
    FROM outbox INDEXED BY outbox_flagged
-- [postgres]
    FROM outbox
-- [both]
    WHERE ambiguous = 1 OR state = 'buried' ORDER BY id DESC LIMIT :bound
) AS flagged
JOIN dead ON dead.session_key = flagged.session_key AND kind = 'reply' AND ref = CAST(flagged.id AS TEXT)
    AND dead.state = 'open'
WHERE destination = :destination AND flagged.state = 'buried'
ORDER BY flagged.id DESC LIMIT :limit

-- name: parts_waiting
-- The parts that one destination waits for, in order.
SELECT id, destination, session_key, platform, state, attempts, ambiguous, receipt, reason, created_at, sending_at, sent_at
FROM outbox WHERE destination = :destination AND state IN ('pending', 'sending') ORDER BY id LIMIT :limit

-- name: stage_moments
-- When the newest answered messages since a time passed each stage. `sending_at` is that of the first part, `sent_at` that of the
-- last; NULL where no part was sent, or some are not sent yet.
SELECT ended.session_key, ended.received_at, turns.claimed_at, turns.started_at, turns.committed_at,
       (SELECT MIN(sending_at) FROM outbox WHERE outbox.turn_id = turns.id) AS sending_at,
       (SELECT CASE WHEN COUNT(sent_at) = COUNT(*) THEN MAX(sent_at) END FROM outbox WHERE outbox.turn_id = turns.id) AS sent_at
FROM (
    SELECT session_key, turn_id, state, received_at
-- [sqlite]
    FROM inbox INDEXED BY inbox_ended
-- [postgres]
    FROM inbox
-- [both]
    WHERE state <> 'pending' AND payload <> '' AND finished_at >= :since
    ORDER BY finished_at DESC LIMIT :limit
) AS ended JOIN turns ON turns.id = ended.turn_id
WHERE ended.state = 'answered'
