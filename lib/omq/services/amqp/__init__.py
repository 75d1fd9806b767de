"""AMQP 1.0: amqp.server and what it is made of."""
