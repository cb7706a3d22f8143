"""Topics and streams on partition logs, Kafka's layout."""
