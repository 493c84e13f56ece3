-- Which turns won, and what numbers their parts have: lists of turns and of [turn, part].
SELECT (SELECT CAST({{json_list}}(ours.turn_id) AS TEXT) FROM {{all_ours}}) AS won,
       (SELECT CAST({{json_list}}({{json_row}}(parts.turn_id, parts.id)) AS TEXT) FROM {{all_parts}}) AS parts
