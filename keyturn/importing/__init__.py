"""Moving in and out: conversations of the older gateways become ours, and ours become JSON lines.

A reader (`hermes/`, `nanobot/`) gives one conversation after another, `write.py` brings each in with one transaction,
and `report.py` says what became of them. `export.py` goes the other way.
"""
