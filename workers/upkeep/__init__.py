"""The housekeeper, and its duties: one file each."""
