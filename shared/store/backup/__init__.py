"""Backups of the database: one file each, made while everything runs, and put back while nothing does."""
