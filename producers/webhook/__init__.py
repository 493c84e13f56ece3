"""The generic signed webhook."""
