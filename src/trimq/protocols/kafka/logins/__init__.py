"""Logins of Kafka clients: SASL mechanisms, and the state of the login of a connection."""
