"""AMQP 0-9-1 front-end, compatible with RabbitMQ clients: wire format, channels, confirms, deliveries and handlers."""
