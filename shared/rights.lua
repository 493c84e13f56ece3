-- Which of these commands the caller may not run. A script that lacks a right in its middle has written half: ask before.
-- KEYS[1] name, one that the script uses
-- ARGV commands
-- Returns the commands that would be refused. Redis before 7 cannot tell: none.
local name, refused = KEYS[1], {}
if redis.acl_check_cmd then
  for _, command in ipairs(ARGV) do  -- with arguments for every command: Valkey 9.1 ends where one lacks its key
    if not redis.acl_check_cmd(command, name, name, name, name) then refused[#refused + 1] = command end
  end
end
return refused
