"""``deadq demo``: the check that its extras are there; the demo itself is a package of its own."""

from __future__ import annotations

from .faults import Fault


def demo(*, seconds: float, as_json: bool, serve: bool) -> int:
    """Run the demo; returns the exit code.

    Raises:
        Fault: an extra is missing.
    """
    try:
        import starlette  # noqa: F401  the demo's other processes need these
        import uvicorn  # noqa: F401

        from ..demo.main import run
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in {"starlette", "uvicorn", "httpx"}:
            raise
        msg = f"the demo needs {missing.name}: pip install 'deadq[server,cli,web]'"
        raise Fault(msg) from None
    return run(seconds=seconds, as_json=as_json, serve=serve)
