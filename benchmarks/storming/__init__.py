"""The parts of ``benchmarks.storm``: an outage seen by a fleet, and three layers that retry."""
