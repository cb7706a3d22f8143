"""TriMQ: one message broker for unmodified Kafka, RocketMQ and RabbitMQ clients."""
