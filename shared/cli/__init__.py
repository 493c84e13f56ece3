"""The keyturn command. It wires and decides nothing; the one place under shared/ that knows producers and workers."""

from __future__ import annotations

import os
import sys

from shared.errors import ConfigurationError


def main() -> None:
    """Entry point. Settings that cannot work end in one line, not in a traceback."""
    sys.path.insert(0, os.getcwd())  # AGENT=module:object may name a module beside keyturn.toml
    from shared.cli.app import app

    try:
        app()
    except ConfigurationError as error:
        print(f"keyturn: {error}", file=sys.stderr)
        raise SystemExit(78) from None
