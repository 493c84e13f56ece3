"""The keyturn command. It wires and decides nothing; the one place under shared/ that knows producers and workers."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from shared.errors import ConfigurationError, PipelineError
from shared.own_modules import allow_working_directory


def main(args: Sequence[str] | None = None) -> None:
    """Entry point. What the pipeline expects to go wrong ends in one line, not in a traceback."""
    allow_working_directory()
    from keyturn.cli.app import app

    try:
        app(args=args, prog_name="keyturn")
    except PipelineError as error:
        print(f"keyturn: {error}", file=sys.stderr)
        raise SystemExit(78 if isinstance(error, ConfigurationError) else 1) from None
