"""One module for each room of the dashboard: what it reads, and what its buttons do."""
