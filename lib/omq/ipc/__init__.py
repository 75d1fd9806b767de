"""Talking to the queue manager: wire, client and server."""
