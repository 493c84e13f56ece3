-- Pairing. Tables: paired (people who were let in), pairing_requests (one row per person who asked), pairing_locks (one row
-- per platform: every transaction that changes its requests locks that row first, so that limits hold). All times are the
-- database's.

-- name: pairing_serialise
-- Let the transactions of a platform come one after another: PostgreSQL locks the row until the commit.
INSERT INTO pairing_locks (platform, wrong, locked_until) VALUES (:platform, 0, 0)
ON CONFLICT (platform) DO UPDATE SET platform = excluded.platform

-- name: pairing_hide
-- Delete the sent parts that tell codes which are no longer valid.
DELETE FROM outbox
WHERE state IN ('sent', 'buried') AND turn_id IN (
    SELECT 'pair_' || salt FROM pairing_requests
    WHERE platform = :platform AND asked_at <= {{now_ms}} - :lifetime_ms)

-- name: pairing_prune
-- Remove requests that are too old, and rows that no request of ours can have written.
DELETE FROM pairing_requests
WHERE platform = :platform
  AND (asked_at <= {{now_ms}} - :lifetime_ms OR asked_at > {{now_ms}} + :lifetime_ms
       OR LENGTH(salt) <> 32 OR LENGTH(digest) NOT IN (0, 64))

-- name: pairing_again
-- Remove the request of a person who may ask again, whichever of their ids it was made under. Not while the platform is locked.
DELETE FROM pairing_requests
WHERE platform = :platform AND (user_id IN (:user_id, :user_alt) OR user_alt IN (:user_id, :user_alt))
  AND asked_at <= {{now_ms}} - :pause_ms
  AND NOT EXISTS (SELECT 1 FROM pairing_locks WHERE platform = :platform AND locked_until > {{now_ms}})

-- name: pairing_ask
-- Record a request, with its code if there are not too many open ones. Returns nothing for a person who asked not long ago,
-- while the platform is locked, and when very many were told to come later.
INSERT INTO pairing_requests (platform, user_id, user_alt, user_name, salt, digest, asked_at)
SELECT :platform, :user_id, :user_alt, :user_name, :salt,
       CASE WHEN (SELECT COUNT(*) FROM pairing_requests WHERE platform = :platform AND digest <> '') < :most_open
            THEN :digest ELSE '' END,
       {{now_ms}}
WHERE NOT EXISTS (SELECT 1 FROM pairing_locks WHERE platform = :platform AND locked_until > {{now_ms}})
  AND NOT EXISTS (
      SELECT 1 FROM pairing_requests
      WHERE platform = :platform AND (user_id IN (:user_id, :user_alt) OR user_alt IN (:user_id, :user_alt)))
  AND (SELECT COUNT(*) FROM pairing_requests WHERE platform = :platform) < :most_kept
ON CONFLICT (platform, user_id) DO NOTHING
RETURNING digest

-- name: pairing_notice
-- Tell the person of the request just recorded: the code, or to come later.
INSERT INTO outbox (idempotency_key, turn_id, ordinal, session_key, destination, platform, payload, state, created_at)
SELECT :idempotency_key, :turn_id, :ordinal, :conversation, :destination, :platform,
       CASE WHEN digest = '' THEN :payload_later ELSE :payload END, 'pending', :now
FROM pairing_requests
WHERE platform = :platform AND user_id = :user_id AND salt = :salt
ON CONFLICT (turn_id, ordinal) DO NOTHING
RETURNING id

-- name: pairing_open
-- The requests of a platform that have a valid code, oldest first.
SELECT user_id, user_alt, user_name, salt, digest, asked_at FROM pairing_requests
WHERE platform = :platform AND digest <> '' AND asked_at BETWEEN {{now_ms}} - :lifetime_ms AND {{now_ms}} + :lifetime_ms
ORDER BY asked_at, user_id

-- name: pairing_locked
-- For how long pairing on a platform is still locked; no row where it is not.
SELECT locked_until - {{now_ms}} AS left_ms FROM pairing_locks WHERE platform = :platform AND locked_until > {{now_ms}}

-- name: pairing_wrong
-- Count a wrong code. With the last one that is allowed, the platform is locked and the count begins anew.
INSERT INTO pairing_locks (platform, wrong, locked_until) VALUES (:platform, 1, 0)
ON CONFLICT (platform) DO UPDATE SET
    wrong = CASE WHEN pairing_locks.wrong + 1 >= :most_wrong THEN 0 ELSE pairing_locks.wrong + 1 END,
    locked_until = CASE WHEN pairing_locks.wrong + 1 >= :most_wrong THEN {{now_ms}} + :lock_ms
                        ELSE pairing_locks.locked_until END
WHERE pairing_locks.locked_until <= {{now_ms}}
RETURNING wrong

-- name: pairing_replace
-- Remove an older approval of the person whose code is being approved, under any of their ids.
DELETE FROM paired
WHERE platform = :platform AND (user_id IN (:user_id, :user_alt) OR user_alt IN (:user_id, :user_alt))
  AND EXISTS (SELECT 1 FROM pairing_requests WHERE platform = :platform AND salt = :salt)
  AND NOT EXISTS (SELECT 1 FROM pairing_locks WHERE platform = :platform AND locked_until > {{now_ms}})

-- name: pairing_approve
-- Let the person of a request in. Returns nothing if its code was used or has expired, or the platform is locked.
INSERT INTO paired (platform, user_id, user_alt, user_name, approved_by, approved_at)
SELECT platform, user_id, user_alt, user_name, :approved_by, {{now_ms}} FROM pairing_requests
WHERE platform = :platform AND salt = :salt AND digest <> '' AND asked_at BETWEEN {{now_ms}} - :lifetime_ms AND {{now_ms}} + :lifetime_ms
  AND NOT EXISTS (SELECT 1 FROM pairing_locks WHERE platform = :platform AND locked_until > {{now_ms}})
ON CONFLICT (platform, user_id) DO NOTHING
RETURNING user_id, user_name

-- name: pairing_used
-- Remove a request whose person was let in, so that its code works once.
DELETE FROM pairing_requests
WHERE platform = :platform AND salt = :salt
  AND NOT EXISTS (SELECT 1 FROM pairing_locks WHERE platform = :platform AND locked_until > {{now_ms}})

-- name: pairing_right
-- Count wrong codes from the beginning after a right one.
UPDATE pairing_locks SET wrong = 0 WHERE platform = :platform AND locked_until <= {{now_ms}}

-- name: pairing_told
-- Delete the part that told a code which was used.
DELETE FROM outbox WHERE turn_id = :turn_id AND state IN ('sent', 'buried')

-- name: pairing_revoke
-- Take an approval back. Returns nothing if there was none.
DELETE FROM paired WHERE platform = :platform AND (user_id = :user_id OR user_alt = :user_id) RETURNING user_id

-- name: paired_one
-- Whether a person with one of these ids was let in.
SELECT user_id FROM paired
WHERE platform = :platform AND (user_id IN (:user_id, :user_alt) OR user_alt IN (:user_id, :user_alt)) LIMIT 1

-- name: paired_list
-- The people who were let in, newest first; all of them if no platform is named.
SELECT platform, user_id, user_alt, user_name, approved_by, approved_at FROM paired
WHERE :platform IN ('', platform)
ORDER BY approved_at DESC, platform, user_id LIMIT :limit

-- name: pairing_list
-- The requests with a valid code, of a platform or of all, oldest first, without anything that could be taken for a code.
SELECT platform, user_id, user_alt, user_name, asked_at FROM pairing_requests
WHERE :platform IN ('', platform)
  AND digest <> '' AND asked_at BETWEEN {{now_ms}} - :lifetime_ms AND {{now_ms}} + :lifetime_ms
ORDER BY asked_at, platform, user_id LIMIT :limit
