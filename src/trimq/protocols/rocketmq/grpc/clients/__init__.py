"""State of gRPC clients and of their calls: registered clients, settings, message renewals, name rules."""
