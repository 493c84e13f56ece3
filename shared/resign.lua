-- Give up the lead, if it is still ours, so that another process need not wait for it to run out.
-- KEYS[1] listener    ARGV[1] token
-- Returns 1 when it was ours, 0 when it was not.
local listener = KEYS[1]
local token = ARGV[1]
if redis.call('GET', listener) ~= token then return 0 end
return redis.call('DEL', listener)
