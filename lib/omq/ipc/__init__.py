"""Talking to the queue manager: the wire, channels, the server's side and the client's."""
