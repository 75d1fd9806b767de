"""The scheduler of outgoing work: channels, their processes, peers and Mlists (ADR 0030)."""
