"""The worker process: the RQ worker and what its jobs work with."""
