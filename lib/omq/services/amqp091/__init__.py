"""AMQP 0-9-1, besides 1.0 on the ports of amqp.server (ADR 0134)."""
