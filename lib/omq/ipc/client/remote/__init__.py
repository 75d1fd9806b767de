"""The Python API over AMQP: what `omq.connect("amqps://host/")` gives."""
