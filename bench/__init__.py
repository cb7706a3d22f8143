"""Benchmarks of the broker on this machine, each compared with a bare loop of the same system calls: `make bench`."""
