"""The arguments of a call, as they travel."""

from __future__ import annotations

import inspect
from typing import Any, cast

from . import codec


def plain_args(signature: inspect.Signature) -> int:
    """How many positional arguments need no binding; -1 when every call must be bound."""
    kinds = {p.kind for p in signature.parameters.values()}
    plain = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return len(signature.parameters) if kinds <= plain else -1


def unpack_arguments(payload: bytes) -> tuple[list[Any], dict[str, Any]]:
    """What :meth:`Task.prepare` encoded, for the worker.

    Raises:
        codec.DecodeError: not such a payload.
    """
    value = codec.decode(payload)
    if isinstance(value, list):
        return value, {}
    if isinstance(value, dict) and value.keys() == {"args", "kwargs"}:
        args, kwargs = value["args"], value["kwargs"]
        if isinstance(args, list) and isinstance(kwargs, dict):
            return args, cast("dict[str, Any]", kwargs)
    msg = "the payload is not a list of arguments"
    raise codec.DecodeError(msg)
