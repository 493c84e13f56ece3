-- Redis' own clock, so that no worker's clock decides when a lease ends.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
