"""Servers from wheels, started by us: no root, no Docker, nothing installed beforehand."""
