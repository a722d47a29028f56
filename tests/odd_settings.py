"""Odd settings of what ``retry`` and ``ahedge`` have in common, which both refuse alike."""

OF_REPEATS = [
    ({"within": 0}, ValueError, "within"),
    ({"within": float("nan")}, ValueError, "within"),
    ({"within": 1e12}, ValueError, "within 1e.12 s is more than ten years"),
    ({"needs": -1}, ValueError, "needs"),
    ({"budget": "none"}, ValueError, "preset"),
    ({"budget": 7}, TypeError, "budget"),
    ({"writes": 1}, TypeError, "writes"),
    ({"key": ""}, TypeError, "key"),
    ({"pass_on": -1}, ValueError, "pass_on"),
    ({"name": ""}, TypeError, "name must be a str"),
]
"""Settings, the error, and what stands in its message."""
