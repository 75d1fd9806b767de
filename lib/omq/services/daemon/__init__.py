"""What every daemon has: its start, its signs of life, its files in the run directory."""
