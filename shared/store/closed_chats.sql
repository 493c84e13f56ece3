-- Chats that take nothing from us any more. Table: closed_chats.

-- name: close_chat
-- Remember that a chat is closed. What was said first stays.
INSERT INTO closed_chats (destination, reason, since) VALUES (:destination, :reason, {{now_ms}})
ON CONFLICT (destination) DO NOTHING

-- name: open_chat
-- A chat is no longer closed.
DELETE FROM closed_chats WHERE destination = :destination RETURNING destination

-- name: closed_chat
-- Whether a chat is closed, and why.
SELECT destination, reason, since FROM closed_chats WHERE destination = :destination

-- name: closed_chats_page
-- Closed chats in order, after a given one.
SELECT destination, reason, since FROM closed_chats WHERE destination > :after ORDER BY destination LIMIT :limit

-- name: closed_chats_count
-- How many chats are closed.
SELECT COUNT(*) AS n FROM closed_chats
