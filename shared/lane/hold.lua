-- Put pauses in force: exactly those that are given, unless newer ones are known. A database that was restored has an older version
-- than the one that is known here: whoever made sure of that names the version that is outdated.
-- KEYS[1] pauses  KEYS[2] known version
-- ARGV[1] version, 0 = there has never been one  ARGV[2] outdated version, 0 = none, then the scopes
-- Returns 0 when they are in force, else the newer version that is.
local pauses, known = KEYS[1], KEYS[2]
local version, outdated = tonumber(ARGV[1]), tonumber(ARGV[2])
local newest = redis.call('TYPE', known).ok == 'string' and tonumber(redis.call('GET', known)) or 0
if newest > version and newest ~= outdated then return newest end
redis.call('DEL', pauses, known)
if version > 0 then redis.call('SET', known, version) end
for i = 3, #ARGV do redis.call('HSET', pauses, ARGV[i], version) end
return 0
