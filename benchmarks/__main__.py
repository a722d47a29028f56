"""Lists the benchmarks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def benchmarks() -> Iterator[tuple[str, str]]:
    """Each benchmark's module, and the first line of what it says of itself."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        runs = any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
        if runs and not path.stem.startswith("_"):
            yield f"benchmarks.{path.stem}", (ast.get_docstring(tree) or "").partition("\n")[0]


if __name__ == "__main__":
    print("Run one with python -m NAME [--quick] [--json] [--picture FILE]; --help says more.\n")
    for name, line in benchmarks():
        print(f"  {name:<24}{line}")
