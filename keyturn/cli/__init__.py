"""The keyturn command: it parses arguments, calls `shared/reading` and `shared/operating` or starts a process, and shows
what came of it. It decides nothing by itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from shared.errors import ConfigurationError, PipelineError
from shared.own_modules import allow_working_directory


def main(args: Sequence[str] | None = None) -> None:
    """Run a command. An error that the pipeline expects ends in one line and exit code 1, or 78 for wrong settings."""
    allow_working_directory()
    from keyturn.cli.app import command

    try:
        command()(args=args, prog_name="keyturn")
    except PipelineError as error:
        from keyturn.cli.show import plain

        print(f"keyturn: {plain(error, lines=True)}", file=sys.stderr)
        raise SystemExit(78 if isinstance(error, ConfigurationError) else 1) from None
