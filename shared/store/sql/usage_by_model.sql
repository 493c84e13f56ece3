-- What was spent since a day, by model.
SELECT model AS name, SUM(requests) AS requests, SUM(input) AS input, SUM(output) AS output, SUM(cache_read) AS cache_read,
       SUM(cache_write) AS cache_write, SUM(total) AS total, SUM(cost_nano) AS cost_nano, SUM(priced) AS priced
FROM usage WHERE day >= :day GROUP BY model ORDER BY SUM(total) DESC, model LIMIT :limit
