"""The client's end of the wire: the Python interface, on this host and (remote) over AMQP."""
