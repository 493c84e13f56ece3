"""What becomes of mail that comes while its key runs a turn."""
