"""Ids of people and chats in prompts and log lines."""

from __future__ import annotations

from pydantic import SecretStr, field_validator

from shared.settings.section import Section

KEY_BYTES = 16


class PrivacySettings(Section):
    """What prompts and log lines say about people."""

    TITLE = "Privacy"

    redact_pii: bool = False
    """Prompts and log lines show ids of people and chats as keyed hashes, on platforms where nobody needs the id to mention
    somebody."""
    redact_key: SecretStr | None = None
    """The key of those hashes, 16 bytes or more. Unset: made up once and kept in DATA_DIR. PostgreSQL needs it set, because
    all machines must hide an id the same way."""

    @field_validator("redact_key")
    @classmethod
    def _is_long_enough(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value().encode()) < KEY_BYTES:
            raise ValueError(f"REDACT_KEY has at least {KEY_BYTES} bytes")
        return key
