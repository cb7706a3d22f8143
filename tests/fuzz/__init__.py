"""Fuzzer: recorded streams of real clients, mutated, against all six ports of a running broker."""
