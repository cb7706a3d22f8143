"""AMQP's layout: one queue log for each queue and priority, with acknowledgements in files of their own."""
