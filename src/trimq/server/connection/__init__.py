"""Connections of clients: listeners, sessions with their pending replies and send queues, limits, and TLS."""
