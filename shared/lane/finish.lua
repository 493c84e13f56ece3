-- End a wake that found nothing to do.
-- KEYS[1..7] as rq_finish
-- ARGV[1..7] as rq_finish
-- Returns 1.
-- include rq_finish.lua
rq_finish(1, 1)
return 1
