"""The socket that a receiver listens on."""

from __future__ import annotations

import errno
import socket

from shared.errors import ConfigurationError


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks a free one. A ConfigurationError says why this address cannot be had."""
    if not 0 <= port <= 65_535:
        raise ConfigurationError(f"port {port}: a port is a number from 0 to 65535, and 0 picks a free one")
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
    except (OSError, UnicodeError) as error:
        listening.close()
        raise ConfigurationError(_refusal(host, port, error)) from None
    return listening


def _refusal(host: str, port: int, error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use: name another with --port, or 0 for a free one"
    if isinstance(error, OSError) and error.errno == errno.EACCES:
        return f"port {port} on {host} is not for this user: name one from 1024 on with --port"
    return f"host {host} is not an address of this machine: try 127.0.0.1, or 0.0.0.0 for all of them"
