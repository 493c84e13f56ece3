-- The end of a key's transcript before a given row, newest first, as one JSON text: by index, whatever its length.
SELECT CAST({{json_list}}({{json_row}}(role, text, data, inbound_id)) AS TEXT) AS rows
FROM (
    SELECT role, text, data, inbound_id FROM messages
    WHERE session_id = (SELECT session_id FROM routes WHERE session_key = :session_key) AND active = 1 AND n < :before
    ORDER BY n DESC LIMIT :limit
) AS newest
