"""What stands on the server, read from all its keys, and what must hold of it at any time.

These checks look at the keys alone, not at the model.
"""

from __future__ import annotations

from typing import Any, Final

from deadq.store.scripts import Rules
from tests.model.queue_model import DEAD, OPEN, UNIT_LIMIT, WAITING, Facts

SLACK: Final = 5_000
"""TTLs run on the server's own clock, which moves on while a test takes its time (ms)."""


class Sight:
    """One look at all keys."""

    def __init__(self, look: dict[str, tuple[Any, int]], now: int) -> None:
        self.values = {name: value for name, (value, _) in look.items()}
        self.ttls = {name: ttl for name, (_, ttl) in look.items()}
        self.now = now
        self.records = self._named("job:")
        self.runs = self._named("run:")
        self.due = self.zset("due")
        self.strays: set[str] = set()
        """Ids whose record was forgotten before anybody swept them; a later life is another job."""
        self.ready = self._in_order("ready")
        self.suspects = self._in_order("suspects")

    def _in_order(self, name: str) -> dict[str, int]:
        """Who waits there, each with its place."""
        found = {}
        by_place = sorted(self.zset(name).items(), key=lambda pair: (pair[1], pair[0]))
        for member, place in by_place:
            seq, _, ident = member.partition(":")
            own = self.records.get(ident, {}).get("seq") == str(int(seq, 16))
            if own:
                found[ident] = place
            else:
                self.strays.add(ident)
        return found

    def _named(self, prefix: str) -> dict[str, Any]:
        return {
            name.removeprefix(prefix): value
            for name, value in self.values.items()
            if name.startswith(prefix)
        }

    def zset(self, name: str) -> dict[str, int]:
        found: dict[str, int] = self.values.get(name, {})
        return found

    def places(self, ident: str) -> list[str]:
        """Every place but ``due`` where the job stands.

        What a lapsed child has held may be forgotten before anybody sweeps it: then a later life
        of the same id stands elsewhere, and the child's set goes when it is swept.
        """
        record = self.records.get(ident, {})
        owners = {record.get("owner"), record.get("owner2")}
        alive = {child for child, end in self.zset("workers").items() if end > self.now}
        return [
            *(["ready"] if ident in self.ready else []),
            *(["suspect"] if ident in self.suspects else []),
            *(name for name in ("later", "strange") if ident in self.zset(name)),
            *(
                f"run:{child}"
                for child, held in self.runs.items()
                if ident in held and (child in owners or child in alive)
            ),
        ]

    def payload(self, ident: str) -> bytes | None:
        record = self.records.get(ident, {})
        if "data" in record:
            text = "".join(record.get(piece, "") for piece in ("data", "data2", "data3"))
        elif f"data:{ident}" in self.values:
            text = self.values[f"data:{ident}"]
        else:
            return None
        return text.encode("utf-8", "surrogateescape")

    def blob(self, ident: str) -> bytes:
        text = self.records.get(ident, {}).get("result") or self.values.get(f"result:{ident}", "")
        return text.encode("utf-8", "surrogateescape")

    def parked(self) -> dict[str, int]:
        return {child: end for child, end in self.zset("parked").items() if end >= self.now}

    def slots(self) -> int:
        """Slots of all whose lease has not lapsed."""
        return sum(
            int(self.values[f"worker:{child}"]["slots"])
            for child, end in self.zset("workers").items()
            if end > self.now
        )

    def tokens(self) -> int:
        return len(self.values.get("wake", []))

    def facts(self, sweeps: int = 99) -> Facts:
        """Service times, as an input for the model."""
        service = self.values.get("service", {})
        tasks = {}
        for name, digest in service.items():
            if name.startswith("s:"):
                p50, p95, _, at, *_ = digest.split()
                tasks[name[2:]] = (float(p50), float(p95), int(at))
        total = None
        if "all" in service:
            n, summed, squares, at = service["all"].split()
            total = (float(n), float(summed), float(squares), int(at))
        dead = sum(
            score <= self.now and self.records.get(ident, {}).get("state") != "running"
            for ident, score in self.due.items()
        )
        return Facts(self.now, tasks, total, blurred=dead > sweeps)

    def frozen(self, *but: str) -> dict[str, Any]:
        """All values, for a comparison; counters of calls and tokens may differ."""
        return {name: v for name, v in self.values.items() if name not in but}


def check(sight: Sight, before: Sight, rules: Rules, lease_ms: int) -> None:
    """Raise AssertionError where the keys contradict each other or the design."""
    _check_cap(sight, rules.capacity)
    _check_places(sight)
    _check_lives(sight, rules.retention_ms)
    _check_workers(sight, lease_ms)
    _check_tokens(sight, before)


def _check_cap(sight: Sight, capacity: int) -> None:
    live = [ident for ident, due in sight.due.items() if due > sight.now]
    assert len(live) <= capacity, f"{len(live)} live jobs in a queue for {capacity}: {live}"
    for ident in live:
        assert sight.records.get(ident, {}).get("state") in OPEN, f"{ident} counts but is not live"


def _check_places(sight: Sight) -> None:
    for ident, record in sight.records.items():
        state, places = record["state"], sight.places(ident)
        if state in OPEN:
            right = {state}
            if state == "running":
                right = {f"run:{record[f]}" for f in ("owner", "owner2") if f in record}
            assert len(places) == len(right), f"{ident} is {state} and stands in {places}"
            assert set(places) == right, f"{ident} is {state} and stands in {places}"
            assert ident in sight.due, f"{ident} is {state} but not in due"
        else:
            assert places == [], f"{ident} is {state} and stands in {places}"
            assert ident not in sight.due, f"{ident} is {state} and still in due"
        runs = state == "running"
        assert (ident in sight.zset("stragglers")) == (runs and "began" in record), ident
        assert (ident in sight.zset("twice")) == (runs and "owner2" in record), ident
        assert (ident in sight.zset("hedges")) <= (ident in sight.zset("stragglers")), ident
        assert (ident in sight.zset("delayed")) <= (state == "later"), f"{ident} is not delayed"
    later, strange = sight.zset("later"), sight.zset("strange")
    everywhere = {*sight.due, *sight.ready, *sight.suspects, *later, *strange}
    for ident in everywhere.union(*sight.runs.values()):
        gone = ident not in sight.records
        # a record that has outlived all its time may leave its id behind, until somebody looks
        assert not gone or sight.due.get(ident, 0) <= sight.now, f"{ident} was lost"


def _check_lives(sight: Sight, retention_ms: int) -> None:
    for ident, record in sight.records.items():
        ttl = sight.ttls[f"job:{ident}"]
        if record["state"] in OPEN:
            least = sight.due[ident] - sight.now + UNIT_LIMIT + retention_ms - SLACK
            assert ttl >= least, f"{ident} would be forgotten after {ttl} ms"
            assert sight.payload(ident) is not None, f"{ident} has lost its payload"
            if f"data:{ident}" in sight.values:
                assert sight.ttls[f"data:{ident}"] >= least
        else:
            assert ttl >= 0, f"{ident} has ended and stays for ever"
    for name, ttl in sight.ttls.items():
        if name.startswith(("data:", "result:", "ctl:", "worker:")):
            assert ttl >= 0, f"{name} stays for ever"
    for ident, record in sight.records.items():
        if record["state"] in DEAD and int(record["finished"]) > sight.now - retention_ms:
            assert ident in sight.zset("dead"), f"{ident} is dead and not listed"
    for ident, died in sight.zset("dead").items():
        # those older than the retention leave with the next one that dies
        if ident in sight.records and died > sight.now - retention_ms + SLACK:
            assert sight.records[ident]["state"] in DEAD, f"{ident} is not dead"
            assert sight.payload(ident) is not None, f"{ident} cannot be replayed"


def _check_workers(sight: Sight, lease_ms: int) -> None:
    workers = sight.zset("workers")
    for child, end in workers.items():
        assert end <= sight.now + lease_ms
        if end > sight.now:
            assert f"worker:{child}" in sight.values, f"{child} lives, its description does not"
    for child in {*sight.runs, *sight.zset("parked")}:
        assert child in workers, f"{child} is gone and something of it is left"


def _check_tokens(sight: Sight, before: Sight) -> None:
    """Neither tokens nor probes grow beyond the workers that may use them."""
    parked = max(len(sight.parked()), len(before.parked()))  # one may be swept after its push
    assert sight.tokens() <= max(before.tokens(), parked), "a token too many"
    probes = [end for end in sight.zset("probes").values() if end > sight.now]
    added = sight.zset("probes").keys() - before.zset("probes").keys()
    assert not added or len(probes) <= sight.slots(), "more probes than slots"


def waiting_dead(sight: Sight) -> bool:
    """Whether something has expired that nobody has swept yet."""
    return any(
        due <= sight.now and sight.records.get(ident, {}).get("state", "ready") in WAITING
        for ident, due in sight.due.items()
    )
