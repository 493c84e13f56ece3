-- How an inbound stands.
SELECT state, attempts FROM inbox WHERE id = :id
