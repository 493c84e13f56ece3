"""Mailbox, lease and wake for any key: used for turns and for deliveries."""

from shared.lane.lane import Lane, Put, Recovered
from shared.lane.lease import Lease

__all__ = ["Lane", "Lease", "Put", "Recovered"]
