"""A turn from its mail to its commit. `take.py` is the spine: it calls the stages in order."""
