-- Put pauses in force: exactly those that are given, unless newer ones are known.
-- KEYS[1] pauses  KEYS[2] known version
-- ARGV[1] version, then the scopes
-- Returns 1 when they are in force, 0 when newer ones are.
local pauses, known = KEYS[1], KEYS[2]
local version = tonumber(ARGV[1])
if redis.call('TYPE', known).ok == 'string' and (tonumber(redis.call('GET', known)) or 0) > version then return 0 end
redis.call('SET', known, version)
redis.call('DEL', pauses)
for i = 2, #ARGV do redis.call('HSET', pauses, ARGV[i], version) end
return 1
