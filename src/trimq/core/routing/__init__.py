"""AMQP routing: exchanges, bindings, and the way from an exchange and a key to queues."""
