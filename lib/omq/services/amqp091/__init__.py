"""AMQP 0-9-1, beside 1.0 on the ports of amqp.server (ADR 0134)."""
