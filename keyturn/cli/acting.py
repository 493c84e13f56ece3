"""Changes that a command makes: each is written to the audit log before it is made, in the name of whoever runs the command."""

from __future__ import annotations

import getpass
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from keyturn.cli.deployment import ask, ask_store

if TYPE_CHECKING:
    from shared.operating.audit import Operator
    from shared.pipeline import Pipeline
    from shared.store import Store

T = TypeVar("T")


def act(action: str, target: str, work: Callable[[Pipeline], Awaitable[T]]) -> T:
    """Change something in the deployment, like `ask`, with a row in the audit log."""
    from shared.operating.audit import Action, audited

    return ask(lambda pipe: audited(pipe.store, operator(), Action(action, target), lambda: work(pipe)))


def act_in_store(action: str, target: str, work: Callable[[Store], Awaitable[T]]) -> T:
    """Change something in the database alone, like `ask_store`, with a row in the audit log."""
    from shared.operating.audit import Action, audited

    return ask_store(lambda store, _: audited(store, operator(), Action(action, target), lambda: work(store)))


def operator() -> Operator:
    """Who runs this command, as the audit log names them."""
    from shared.operating.audit import Operator

    return Operator(user_name(), "cli")


def user_name() -> str:
    """Who runs this command, by the operating system."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return f"user {os.getuid()}"
