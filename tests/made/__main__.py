"""Make an archive of synthetic traffic: `python -m tests.made --to DIR --messages 100000`.

It prints what is true of it, as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.made.generate import generate
from tests.made.generator import Load


def main() -> None:
    """The command."""
    made = argparse.ArgumentParser(prog="python -m tests.made",
                                   description="make an archive of synthetic traffic")
    made.add_argument("--to", type=Path, required=True, help="directory to make it in")
    made.add_argument("--messages", type=int, default=100_000, help="(default: %(default)s)")
    made.add_argument("--faults", type=int, default=0, help="how many of each kind to plant")
    made.add_argument("--stories", type=int, default=1,
                      help="how often each kind of message is told besides (default: %(default)s)")
    made.add_argument("--seed", type=int, default=1, help="another seed, other traffic")
    made.add_argument("--rate", type=float, default=60.0, help="messages a second, on average")
    made.add_argument("--file-frames", type=int, default=400_000, help="frames of one file")
    options = made.parse_args()
    truth = generate(options.to, options.messages, faults=options.faults,
                     load=Load(seed=options.seed, rate=options.rate),
                     file_frames=options.file_frames, stories=options.stories)
    print(json.dumps(truth | {"faults": len(truth["faults"]), "stories": len(truth["stories"])}))


if __name__ == "__main__":
    main()
