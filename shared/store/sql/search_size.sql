-- SQLite: how large the index of search is, and of how many parts.
SELECT (SELECT COUNT(*) FROM search_grams_data) AS pages, (SELECT COUNT(DISTINCT segid) FROM search_grams_idx) AS segments
