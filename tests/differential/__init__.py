"""Differential tests: seeded sequences of requests run against TriMQ and against the broker whose protocol it speaks.
A difference in the answers is shrunk to the shortest sequence that still shows it."""
