"""Small durable maps: a log of changes and a snapshot each."""
