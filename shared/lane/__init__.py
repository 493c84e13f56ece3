"""Mailbox, lease and wake for any key: used for turns and for deliveries."""

from shared.lane.lane import Lane
from shared.lane.lease import Lease
from shared.lane.outcomes import Admission, Claim, Put, Recovered, Started

__all__ = ["Admission", "Claim", "Lane", "Lease", "Put", "Recovered", "Started"]
