"""A test of the timeouts and tries of a chain of calls."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..resilience.chain import ChainVerdict, judge
from ..resilience.chain_description import chain_of
from ..resilience.chain_file import read_chain


def assert_chain(description: str | os.PathLike[str] | Mapping[str, Any]) -> ChainVerdict:
    """Fail the test that calls it when the chain is at fault, each fault in a line of its own.

    ``description`` is the path of a file, TOML or JSON, as ``deadq check --chain`` takes it; or
    what stands in one, ``{"budget_s": ..., "tiers": ...}``. Returns the figures, for more asserts.

    Raises:
        AssertionError: a layer promises more than it receives, two layers retry, or the sum
            exceeds the edge's budget.
        OSError: the file cannot be read.
        ValueError: it describes no chain.
    """
    __tracebackhide__ = True
    if isinstance(description, Mapping):
        chain, name = chain_of(description), "the chain"
    else:
        chain, name = read_chain(Path(description)), f"the chain {os.fspath(description)}"
    verdict = judge(chain)
    if verdict.faults:
        lines = (
            f"  {fault.kind}: {fault.reason}\n    -> {fault.remedy}" for fault in verdict.faults
        )
        raise AssertionError("\n".join([f"{name} is at fault:", *lines]))
    return verdict
