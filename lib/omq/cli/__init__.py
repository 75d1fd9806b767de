"""Command line tools: one module per command."""

import sys

if sys.platform != "linux":
    sys.exit(f"omq: the commands need Linux, and this is {sys.platform}; 'python -m omq' says what "
             "works here")
