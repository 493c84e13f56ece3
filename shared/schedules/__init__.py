"""Schedules: when something is due, what is due, and what becomes of each slot. Pure; shared/store/schedules.py keeps them."""
