"""The HTTP API: post a message, see where it stands, follow a session."""
