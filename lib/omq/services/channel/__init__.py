"""Message channels: messages of a transmission queue go to another instance, each exactly once."""
