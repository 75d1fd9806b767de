"""Commands that change an instance or its messages."""
