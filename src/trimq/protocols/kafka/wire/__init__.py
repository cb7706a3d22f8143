"""Wire format of Kafka: frames, connections without IO, the compiled codec, and fast paths for Produce and Fetch."""
