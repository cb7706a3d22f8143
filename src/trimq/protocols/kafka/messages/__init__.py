"""Schemas of the Kafka messages, one module per family; imported when an API of the family is first used."""
