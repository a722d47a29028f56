"""What a bound in wall time may be exceeded by, on a machine that others use too."""

import os


def slack_s(alone: float = 0.15, crowded: float = 1.5) -> float:
    """Seconds that the machine may add: few where these tests have it to themselves (``-n 0``)."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return alone if "PYTEST_XDIST_WORKER" not in os.environ and load <= 1 else crowded
