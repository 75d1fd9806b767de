"""An instance's journal and pool in an object store, and back."""
