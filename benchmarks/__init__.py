"""Measurements, each a program: ``python -m benchmarks`` lists them.

Each starts a private server, prints its environment first, and then its figures; ``--json`` gives
one object ``{"environment": {...}, "figures": {...}, "series": {...}}``.
"""
