-- Destinations with parts that have waited for a while, from a given one on, each with its first part.
SELECT destination, MIN(id) AS first FROM outbox
WHERE state IN ('pending', 'sending') AND destination > :after AND created_at <= :before
GROUP BY destination ORDER BY destination LIMIT :limit
