-- Remember a failed attempt beyond the life of Redis.
UPDATE inbox SET attempts = :attempts, reason = :reason WHERE id = :id AND state = 'pending'
