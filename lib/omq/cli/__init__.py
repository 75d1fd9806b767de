"""Command line tools: one module per command."""
