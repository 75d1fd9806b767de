"""The engine: the only writer of the index. What a request does, and what the journal gets."""
