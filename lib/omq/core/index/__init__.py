"""The index: its tables as bytes in shared memory, and the ways to look into them."""
