"""Files of conversations. A blob is named by what is in it, so it never changes, and records hold its name only."""
