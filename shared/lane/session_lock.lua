-- Take a ticket for a session that several keys talk to, or keep the one that is held. The oldest ticket has the session.
-- KEYS[1] lock
-- ARGV[1] token  ARGV[2] lease_ms
-- Returns {1, tokens that wait ...} when the session is ours, {0} when an older ticket has it.
-- include now.lua
local lock = KEYS[1]
local token, lease_ms = ARGV[1], tonumber(ARGV[2])
local at = now_ms()
local tickets = redis.call('HGETALL', lock)
local mine, first, last, waiting = nil, nil, 0, {1}
for i = 1, #tickets, 2 do
  local number, until_ms = string.match(tickets[i + 1], '^(%d+):(%d+)$')
  number, until_ms = tonumber(number), tonumber(until_ms)
  if not until_ms or until_ms <= at then
    redis.call('HDEL', lock, tickets[i])
  else
    last = math.max(last, number)
    if tickets[i] == token then
      mine = number
    else
      first = math.min(first or number, number)
      waiting[#waiting + 1] = tickets[i]
    end
  end
end
mine = mine or last + 1
redis.call('HSET', lock, token, string.format('%.0f:%.0f', mine, at + lease_ms))
redis.call('PEXPIRE', lock, lease_ms)
if first and first < mine then return {0} end
return waiting
