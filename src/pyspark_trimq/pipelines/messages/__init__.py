"""Fields of messages that pipelines work on: headers, identity, order of offsets, sequence numbers."""
