"""The daemons: one module per service, and what supervises them. Imports nothing from cli."""
