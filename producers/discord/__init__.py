"""Discord: messages by the gateway, interactions by webhook or by the gateway."""
