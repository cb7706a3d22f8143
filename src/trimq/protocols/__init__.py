"""Front-ends of the client protocols (Kafka, RocketMQ, AMQP), the gRPC transport, and their contract with the
server."""
