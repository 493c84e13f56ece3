-- Which sessions refer to which blobs. Table: blob_references (digest, session_id, created_at).

-- name: blob_refer
-- Write down that a session refers to a blob, if this turn won the session.
INSERT INTO blob_references (digest, session_id, created_at)
SELECT :digest, :session_id, :now
FROM {{batch.ours}} WHERE ours.id = :session_id AND ours.turn_id = :turn_id
ON CONFLICT (digest, session_id) DO UPDATE SET created_at = excluded.created_at

-- name: blob_refer_branch
-- Let a copy of a session refer to what the session refers to, if this turn won the session.
INSERT INTO blob_references (digest, session_id, created_at)
SELECT known.digest, :branch_id, :now
FROM {{batch.ours}} JOIN blob_references AS known ON known.session_id = ours.id
WHERE ours.id = :session_id AND ours.turn_id = :turn_id
ON CONFLICT (digest, session_id) DO NOTHING

-- name: blob_referred
-- Those of the given digests to which a session refers that is there. `:digests` is a JSON list of objects.
SELECT DISTINCT blob_references.digest
FROM {{each}}(:digests) JOIN blob_references ON blob_references.digest = value ->> 'digest'
JOIN sessions ON sessions.id = blob_references.session_id
