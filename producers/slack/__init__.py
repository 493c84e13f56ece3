"""Slack, by its Events API or by Socket Mode."""
