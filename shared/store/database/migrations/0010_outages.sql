-- Since when the provider that a message needs is away: what Redis may forget.
ALTER TABLE inbox ADD COLUMN outage_since BIGINT;
