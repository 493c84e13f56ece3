"""Where the dashboard may be reached."""

from __future__ import annotations

from pydantic import Field

from shared.setting_values import Names
from shared.settings.section import Block, Section


class DashboardBlock(Block):
    """The web page for operators. People log in with a link that works once: `keyturn up` prints one, `keyturn login` makes
    more."""

    enabled: bool = True
    """Whether `keyturn up` starts the dashboard."""
    port: int = Field(default=8081, ge=0, le=65_535)
    """The port of the dashboard. Where it is taken, `keyturn up` uses a free one, and `keyturn dashboard` does not start."""
    hosts: Names = ()
    """Names under which browsers may ask for it, beside this machine's own: that of a proxy before it, for example."""


class DashboardSettings(Section):
    """The web page for operators."""

    TITLE = "Dashboard"

    dashboard: DashboardBlock = DashboardBlock()
    """The web page for operators."""
