"""What all unit tests have."""

from __future__ import annotations

from tests.storage_files import files_of_the_test

__all__ = ["files_of_the_test"]
