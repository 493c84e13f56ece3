"""The keyturn command. It wires and decides nothing; the one place under shared/ that knows producers and workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from shared.errors import ConfigurationError, PipelineError


def main(args: Sequence[str] | None = None) -> None:
    """Entry point. What the pipeline expects to go wrong ends in one line, not in a traceback."""
    sys.path.insert(0, os.getcwd())  # AGENT=module:object may name a module beside keyturn.toml
    from shared.cli.app import app

    try:
        app(args=args)
    except PipelineError as error:
        print(f"keyturn: {error}", file=sys.stderr)
        raise SystemExit(78 if isinstance(error, ConfigurationError) else 1) from None
