-- Take one send from the budgets of a chat and of its bot, or say how long to wait with it.
-- Each budget is a hash: `full_at` is when its whole burst is there again, `held_until` is until when the platform asked to wait.
-- A reply that its bot keeps waiting takes the bot's next free send now, to be used at that time (`reserved_at`), so that
-- waiting chats go one after another. A hold that comes later makes a reservation void, and so does time. Chats that come late for
-- theirs may come together, after workers stood still: they go one after another too (`late_at`: when the next of them may).
-- Of a bot that is `refused`, one chat at a time may send when the hold is over: the probe. The others wait for its outcome, and
-- if there is none for `reservation_ms`, another chat probes.
-- A change of a draft reserves nothing, and leaves half of each burst to replies.
-- KEYS[1] chat  KEYS[2] bot  KEYS[3] edits
-- ARGV[1] is edit?  ARGV[2] reservation_ms  ARGV[3] late_ms, how late is late
-- ARGV[4] and on, for chat, bot and edits: the milliseconds between two sends, 0 = any number; and the burst
-- Returns 0 when it may be sent now, -1 when it may be sent now and is the probe, else the milliseconds to wait.
-- include ../lane/now.lua
local chat, bot, edits = KEYS[1], KEYS[2], KEYS[3]
local is_edit, reservation_ms, late_ms = ARGV[1] == '1', tonumber(ARGV[2]), tonumber(ARGV[3])
local now = now_ms()
local function budget(i, name)
  local interval_ms, burst = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local found = redis.call('HMGET', name, 'full_at', 'held_until')
  local held_until, burst_ms = tonumber(found[2]) or 0, (burst - 1) * interval_ms
  local full_at = math.max(now, tonumber(found[1]) or 0, held_until > 0 and held_until + burst_ms or 0)
  return {name = name, interval_ms = interval_ms, held_until = held_until, full_at = full_at,
    free_at = full_at - burst_ms, edit_at = full_at - burst_ms + math.floor(burst / 2) * interval_ms}
end
local function take(from)
  if from.interval_ms == 0 then return end
  redis.call('HSET', from.name, 'full_at', from.full_at + from.interval_ms)
  redis.call('PEXPIRE', from.name, math.ceil(from.full_at + from.interval_ms - now) + 1000)
end
local of_chat, of_bot = budget(4, chat), budget(6, bot)
local function reserve(at)
  redis.call('HSET', chat, 'reserved_at', at)
  redis.call('PEXPIRE', chat, math.ceil(math.max(at + reservation_ms, of_chat.full_at) - now) + 1000)
  return math.ceil(at - now)
end
local is_refused = redis.call('HEXISTS', bot, 'refused') == 1
if is_refused and of_bot.held_until > now then return math.ceil(of_bot.held_until - now) end
if is_edit then
  if is_refused then return reservation_ms end
  local of_edits = budget(8, edits)
  local free_at = math.max(of_chat.edit_at, of_bot.edit_at, of_edits.free_at)
  if free_at > now then return math.ceil(free_at - now) end
  take(of_chat)
  take(of_bot)
  take(of_edits)
  return 0
end
if of_chat.free_at > now then return math.ceil(of_chat.free_at - now) end
if is_refused then
  redis.call('HSET', bot, 'held_until', now + reservation_ms)
  redis.call('PEXPIRE', bot, math.max(redis.call('PTTL', bot), 2 * reservation_ms))
  take(of_chat)
  return -1
end
local reserved_at = tonumber(redis.call('HGET', chat, 'reserved_at'))
if reserved_at and reserved_at >= of_bot.held_until and reserved_at + reservation_ms >= now then
  if reserved_at > now then return math.ceil(reserved_at - now) end
  if now - reserved_at > late_ms then
    local late_at = math.max(now, tonumber(redis.call('HGET', bot, 'late_at')) or 0)
    redis.call('HSET', bot, 'late_at', late_at + of_bot.interval_ms)
    redis.call('PEXPIRE', bot, math.max(redis.call('PTTL', bot), math.ceil(late_at + of_bot.interval_ms - now) + 1000))
    if late_at > now then return reserve(late_at) end
  end
else
  take(of_bot)
  if of_bot.free_at > now then
    return reserve(of_bot.free_at)
  end
end
if reserved_at then redis.call('HDEL', chat, 'reserved_at') end
take(of_chat)
return 0
