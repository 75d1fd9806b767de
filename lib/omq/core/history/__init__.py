"""History: what the journal and its archive say of messages."""
