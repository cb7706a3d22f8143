"""Spark source `format("trimq")`: options, offsets, batch and stream readers, and the lag of streaming queries."""
