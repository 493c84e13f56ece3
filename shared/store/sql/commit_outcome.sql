-- Which turns won, each with the numbers of its parts: [turn, part], and null for a turn without any.
SELECT CAST({{json_list}}({{json_row}}(value ->> 'turn_id', parts.id)) AS TEXT) AS won
FROM {{each}}(:turns) {{where_ours}} LEFT JOIN {{parts}} ON parts.turn_id = value ->> 'turn_id'
