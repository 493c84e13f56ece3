"""The agents: history and mail in, rows and replies out. No Redis, no platform, no SQL."""
