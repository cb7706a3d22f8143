"""Restoring archives for the pipeline `restore`: original offsets, rounds of bounded size, records that are too
large."""
