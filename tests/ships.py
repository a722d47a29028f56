"""A database for the effects of units: it takes none under an older fence than it has seen."""

import sqlite3
from collections import defaultdict
from pathlib import Path


class StaleFence(Exception):
    """A later attempt has been here."""


class Ships:
    """One connection. Effects and fences change together, in one transaction."""

    def __init__(self, folder: Path) -> None:
        # a process that is stopped in a transaction holds all others up for as long
        self._database = sqlite3.connect(folder / "ships", timeout=30.0, isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;"
            "CREATE TABLE IF NOT EXISTS fences (key TEXT PRIMARY KEY, highest INTEGER);"
            "CREATE TABLE IF NOT EXISTS effects (key TEXT, fence INTEGER);"
            "CREATE TABLE IF NOT EXISTS refused (key TEXT, fence INTEGER);"
            "CREATE TABLE IF NOT EXISTS recorded (key TEXT, fence INTEGER);"
        )

    def ship(self, key: str, fence: int) -> int:
        """Take effect, and return the fence.

        Raises:
            StaleFence: refused, and counted.
        """
        run = self._database.execute
        run("BEGIN IMMEDIATE")
        row = run("SELECT highest FROM fences WHERE key = ?", (key,)).fetchone()
        stale = row is not None and row[0] > fence
        if not stale:
            run("INSERT OR REPLACE INTO fences VALUES (?, ?)", (key, fence))
        run(f"INSERT INTO {'refused' if stale else 'effects'} VALUES (?, ?)", (key, fence))
        run("COMMIT")
        if stale:
            raise StaleFence
        return fence

    def note(self, key: str, fence: int) -> None:
        """An attempt has got this fence for the result of the unit."""
        self._database.execute("INSERT INTO recorded VALUES (?, ?)", (key, fence))

    def recorded(self) -> dict[str, set[int]]:
        """What the attempts of each job have got."""
        found = defaultdict(set)
        for key, fence in self._database.execute("SELECT key, fence FROM recorded"):
            found[key].add(fence)
        return found

    def effects(self) -> dict[str, list[int]]:
        """The fences under which each job took effect, in order."""
        found = defaultdict(list)
        for key, fence in self._database.execute("SELECT key, fence FROM effects ORDER BY rowid"):
            found[key].append(fence)
        return found

    def refused(self) -> int:
        """How many effects were refused."""
        count: int = self._database.execute("SELECT count(*) FROM refused").fetchone()[0]
        return count

    def close(self) -> None:
        self._database.close()
