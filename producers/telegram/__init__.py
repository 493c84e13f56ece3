"""Telegram, by webhook or by long polling."""
