-- What an owner has cost since a day.
SELECT SUM(requests) AS requests, SUM(input) AS input, SUM(output) AS output, SUM(cache_read) AS cache_read,
       SUM(cache_write) AS cache_write, SUM(total) AS total, SUM(cost_nano) AS cost_nano, SUM(priced) AS priced
FROM usage WHERE owner = :owner AND day >= :day
