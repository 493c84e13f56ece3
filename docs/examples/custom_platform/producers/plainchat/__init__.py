"""Plainchat: rooms over plain HTTP."""
