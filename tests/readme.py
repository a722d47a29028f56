"""The README, in parts."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    """What stands in fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def code(name: str) -> str:
    """The block whose first line says that it is this file."""
    (found,) = (block for block in blocks("python") if re.match(rf"# {re.escape(name)}\b", block))
    return found


def section(title: str) -> str:
    """From a heading to the next one of its kind."""
    _, _, rest = README.partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]
