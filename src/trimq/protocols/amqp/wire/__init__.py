"""AMQP 0-9-1 on the wire: frames, methods, contents, handshake and errors. Knows neither sockets nor the broker."""
