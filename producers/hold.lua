-- Replace a value that expires, unless it is no longer as its reader found it.
-- KEYS[1] name  ARGV[1] found  ARGV[2] wanted  ARGV[3] ttl_ms
-- An empty text stands for no value.
-- Returns 1 when replaced, 0 when somebody else was faster.
local name = KEYS[1]
local found, wanted, ttl_ms = ARGV[1], ARGV[2], ARGV[3]
if (redis.call('GET', name) or '') ~= found then return 0 end
if wanted == '' then
  redis.call('DEL', name)
else
  redis.call('SET', name, wanted, 'PX', ttl_ms)
end
return 1
