"""Replies to API callers: they follow their session."""

from __future__ import annotations

from workers.delivery.followed import open_followed as open_sender

__all__ = ["open_sender"]
