"""Inspects a stopped broker's data folder without changing it."""
