-- Remember since when the provider of a message is away, by the database's clock, beyond the life of Redis.
UPDATE inbox SET outage_since = COALESCE(outage_since, {{now_ms}} - :away_ms), reason = :reason WHERE id = :id AND state = 'pending'
