-- Take or keep the lead: one process at a time holds a platform's connection.
-- KEYS[1] listener    ARGV[1] token    ARGV[2] ttl_ms
-- Returns 1 when it is ours, 0 when another process has it.
local listener = KEYS[1]
local token, ttl_ms = ARGV[1], ARGV[2]
local holder = redis.call('GET', listener)
if holder and holder ~= token then return 0 end
redis.call('SET', listener, token, 'PX', ttl_ms)
return 1
