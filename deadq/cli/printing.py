"""What commands print for programs."""

from __future__ import annotations

import json
import sys


def print_json(value: object) -> None:
    """One JSON value on stdout."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
