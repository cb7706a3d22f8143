"""Descriptions of the messages, one module per family; imported only when an API of the family is first used."""
