"""Owns the state of the name server: registered brokers with their topics, and the routes of this broker."""
