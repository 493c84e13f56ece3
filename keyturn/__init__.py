"""What people touch: the public names for authors of agents, the command line, the importers."""

from shared.errors import Permanent
from shared.messages import Entry, Inbound, Media, Reply, Result, Source, Turn

__all__ = ["Entry", "Inbound", "Media", "Permanent", "Reply", "Result", "Source", "Turn"]
