"""What holds for every script: the names of keys, the slots of a call, the time, and repeats."""

import re
from pathlib import Path

import pytest

import deadq.store
from deadq.job import Departure
from deadq.store import keys, loader, scripts
from tests.scripts.world import LEASE, RETENTION, T0, renewal, settlement, submission, tied

LUA = Path(deadq.store.__file__).parent / "lua"
COUNTS = {"two": 2, "seven": 7, "thirteen": 13}


def code(text: str) -> str:
    """Lua without its comments."""
    return "\n".join(line.split("--")[0] for line in text.splitlines())


def source(name: str) -> str:
    return code(loader.load(name).source.decode())


def header(name: str) -> str:
    """The comment that stands at the top of the script."""
    lines = (LUA / f"{name}.lua").read_text().splitlines()
    top = [line for line in lines[: lines.index("")] if not line.startswith("--!")]
    assert all(line.startswith("--") for line in top)
    # two paragraphs: what it does, and its slots
    rest = lines[lines.index("") + 1 :]
    return "\n".join(top + [line for line in rest if line.startswith("--")])


def example_calls() -> dict[str, scripts.Call]:
    """One call of each script; a new one cannot be forgotten."""
    rules = scripts.Rules(5, "deadline", "feasible", RETENTION)
    calls = {
        "admit": scripts.admit(rules, [submission("a")]),
        "begin": scripts.begin(
            "c", "a", 1, "u", "ab", needs_ms=1, limit_ms=1, on_doubt="rerun", retention_ms=RETENTION
        ),
        "cancel": scripts.cancel("a", retention_ms=RETENTION),
        "claim": scripts.claim("c", 1, 1, retention_ms=RETENTION, park=True, tasks=["t"]),
        "dead": scripts.dead(1),
        "exchange": scripts.exchange(
            [settlement("a")],
            scripts.claim("c", 1, 1, retention_ms=RETENTION, park=True, tasks=["t"]),
        ),
        "fetch": scripts.fetch(["a"]),
        "finish": scripts.finish("c", [settlement("a")], retention_ms=RETENTION),
        "jobs": scripts.jobs("", 1),
        "leave": scripts.leave([("a", "w:pC.1")], retention_ms=RETENTION),
        "lend": scripts.lend(
            "p", 1, rule="0.1 1 10000", wanted=3, length_ms=1000, deeds=[scripts.Deed("f", 0, 5)]
        ),
        "pause": scripts.pause(paused=True),
        "record": scripts.record("a", 1, "u", "done", 1, b""),
        "register": scripts.register(
            "c", lease_ms=LEASE, slots=1, who="h", retention_ms=RETENTION, tasks=["t"]
        ),
        "release": scripts.release("c", retention_ms=RETENTION),
        "renew": scripts.renew([renewal("c")], lease_ms=LEASE, retention_ms=RETENTION),
        "show": scripts.show("a"),
        "stats": scripts.stats(),
        "survey": scripts.survey(["t"]),
        "untie": scripts.untie(tied("a"), "q", retention_ms=RETENTION),
    }
    assert calls.keys() == set(loader.names())
    assert all(call.script.name == name for name, call in calls.items())
    return calls


NAMES = sorted(example_calls())


# The time.


@pytest.mark.parametrize("name", NAMES)
def test_every_reply_begins_with_the_time(world, name):
    assert world.reply(example_calls()[name])[0] == T0


@pytest.mark.parametrize("name", NAMES)
def test_without_a_time_of_the_tests_it_is_the_servers(world, name):
    call = example_calls()[name]
    before = world.client.time()
    now = world.client.eval(call.script.source, 1, world.prefix, "", *call.args)[0]
    after = world.client.time()
    assert before[0] * 1000 + before[1] // 1000 <= now <= after[0] * 1000 + after[1] // 1000


def test_fences_count_the_servers_microseconds(world):
    world.seed_job("a", deadline=10**15)
    world.now = int(world.client.time()[0]) * 1000
    world.register("c")
    call = scripts.claim("c", 1, 1, retention_ms=RETENTION, park=False, tasks=["t"])
    before = world.client.time()
    world.client.eval(call.script.source, 1, world.prefix, "", *call.args)
    after = world.client.time()
    fence = int(world.job("a")["fence"])
    assert before[0] * 10**6 + before[1] <= fence <= after[0] * 10**6 + after[1]


# Keys.


def names_in_lua() -> tuple[set[str], set[str]]:
    """Names that scripts append to the prefix: whole ones, and those that an id follows."""
    whole: set[str] = set()
    kinds: set[str] = set()
    for path in LUA.rglob("*.lua"):
        for name, colon in re.findall(r"\bP \.\. '([a-z]+)(:?)'", code(path.read_text())):
            (kinds if colon else whole).add(name)
    return whole, kinds


def test_keys_names_the_same_keys_as_the_scripts():
    whole, kinds = names_in_lua()
    assert whole == set(keys.STANDING)
    assert kinds == {*keys.PASSING, "reply"}


def test_nothing_but_the_prefix_comes_from_outside():
    for name in NAMES:
        assert set(re.findall(r"KEYS\[\d+\]", source(name))) == {"KEYS[1]"}
        assert not re.search(r"['\"]deadq:", source(name)), "a name spelt out beside the prefix"


def test_every_key_that_a_life_leaves_is_a_known_one(world):
    world.capacity = 50
    world.seed_service("t", 10, 20)
    world.register("c", slots=9)
    world.seed_worker("p", slots=2, parked=61_000)
    world.admit(
        *(submission(f"a{i}", within=9_000 + i, payload=b"p" * 500) for i in range(5)),
        submission("b0", not_before=500),
        submission("c0", task="unheard of", within=3_000),
        submission("d0", within=5),
    )
    world.seed_worker("gone")
    world.seed_job("e0", state="running", owner="gone", seq=77)
    world.release("gone", Departure.DIED)
    claims = world.claim("c", 1, 5).claims
    assert {claim.id for claim in claims} == {"a0", "a1", "a2", "a3", "d0"}
    fences = {claim.id: claim.fence for claim in claims}
    world.admit(submission("f0", within=90_000, marks="h", task="u"))
    world.seed_service("u", 10, 20)
    for child in ("d", "e"):
        world.register(child, "u", "v")
        world.seed_earned()
        world.claim(child, 1, 2, "u", "v")
        world.now += 50
    world.admit(submission("f1", within=90_000, marks="h", task="u"))
    world.claim("d", 2, 1, "u")
    world.client.zadd(world.key("parked"), {"p": T0 + 61_000})
    world.cancel("a0")
    world.finish(
        "c",
        settlement("a1", fence=fences["a1"], blob=b"r" * 500),
        settlement("a2", "failed", fence=fences["a2"]),
    )
    found = {name: ttl for name, (_, ttl) in world.look().items()}
    standing = {name for name in found if ":" not in name}
    assert standing == set(keys.STANDING), "each of them was needed in this life"
    kinds = {name.split(":")[0] for name in found if ":" in name}
    assert kinds == set(keys.PASSING)
    for name, ttl in found.items():
        kind, _, ident = name.partition(":")
        made = keys.key("q", kind, ident or None)
        assert made == world.key(name)
        if ident and kind != "run":
            assert ttl > 0, f"{name} would stay for ever"


@pytest.mark.parametrize("queue", ["q", "a b", "{x}", "ü/ä", "a:b", "%7B"])
def test_all_keys_of_a_queue_share_one_hash_tag(queue):
    prefix = keys.prefix(queue)
    assert re.fullmatch(r"deadq:\{[A-Za-z0-9%._~-]+\}:", prefix)
    assert keys.key(queue, "due").startswith(prefix)
    assert keys.key(queue, "job", "a").startswith(prefix)
    assert keys.reply_channel(queue, "C").startswith(prefix)


def test_two_names_never_share_a_prefix():
    names = ["q", "Q", "q ", "q%20", "q:", "{q}", "é", "e\u0301"]
    assert len({keys.prefix(name) for name in names}) == len(names)


# Slots: what the header names is what the body reads.


def slots_named(name: str) -> dict[int, bool]:
    """Numbered slots in the header; whether it is the first of many."""
    text = header(name)
    slots = text[text.index("ARGV") : text.index("reply:")]
    found = re.findall(r"(?:ARGV |   |--\s+)(\d+)(\.\.)? ", slots)
    return {int(number): bool(many) for number, many in found}


def group_size(name: str) -> int:
    """How many slots each of many things takes up; 0 when the header has no such group."""
    text = " ".join(line.lstrip("- ") for line in header(name).splitlines())
    group = re.search(r"then (?:(\w+) )?for each[^:]*: (.*?) (?:reply:|outcome:)", text)
    if group is None:
        return 0
    return COUNTS[group[1]] if group[1] else group[2].count(",") + 1


@pytest.mark.parametrize("name", sorted({*NAMES} - {"claim", "exchange"}))
def test_every_slot_in_the_header_is_read_and_no_other(name):
    body, named = source(name), slots_named(name)
    assert sorted(named) == list(range(1, len(named) + 1)), "numbered without a gap"
    read = {int(n) for n in re.findall(r"ARGV\[(\d+)\]", body)}
    loops = {(int(a), int(b or 1)) for a, b in re.findall(r"= (\d+), #ARGV(?:, (\d+))?", body)}
    starts = {start for start, _ in loops}
    for number, many in named.items():
        assert number in (starts if many else read), f"slot {number} is not read"
    assert read <= set(named), "slots are read that the header does not name"
    assert starts <= {n for n, many in named.items() if many} | {len(named) + 1}


def test_every_slot_of_a_claim_is_read():
    body, named = source("claim"), slots_named("claim")
    first = len(named) - 4  # time, child and retention come before the claim's own
    assert f"claim(ARGV[2], tonumber(ARGV[3]), {first})" in body
    for slot in ("at", "at + 1", "at + 2", "at + 3"):
        assert f"ARGV[{slot}]" in body
    assert "= at + 4, #ARGV do" in body


@pytest.mark.parametrize("name", ["admit", "finish", "leave"])
def test_every_slot_of_a_group_is_read(name):
    size, named, body = group_size(name), slots_named(name), source(name)
    if name == "finish":  # its loop stands in a part, which exchange shares
        assert f"tonumber(ARGV[3]), {len(named) + 1}, #ARGV" in body
        assert f"= first, last, {size} do" in body
    else:
        assert f"= {len(named) + 1}, #ARGV, {size} do" in body
    offsets = {int(k or 0) for k in re.findall(r"ARGV\[i(?: \+ (\d+))?\]", body)}
    assert offsets == set(range(size))


def test_every_slot_of_a_renewal_is_read():
    body = source("renew")
    for slot in ("i", "i + 1", "i + 2", "j", "j + 1"):
        assert f"ARGV[{slot}]" in body


@pytest.mark.parametrize("name", NAMES)
def test_a_call_fills_every_slot(name):
    call, named = example_calls()[name], slots_named(name)
    single = [number for number, many in named.items() if not many]
    assert len(call.args) >= len(single) - 1  # the time is added by the shell
    assert loader.load(name).sha == call.script.sha


# What keeps them running alike everywhere.


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_used_that_some_server_lacks(name):
    body = source(name)
    for missing in ("cmsgpack", "struct.", "cjson", "redis.breakpoint", "redis.setresp", "bit."):
        assert missing not in body
    assert body.count("'TIME'") == 1, "the time is read once"
    locals_only = re.findall(r"^(?!local )(?:function (\w+)|(\w+) = )", body, re.MULTILINE)
    declared = set(re.findall(r"local (?:function )?([\w, ]+)", body))
    names = {name.strip() for group in declared for name in group.split(",")}
    assert {a or b for a, b in locals_only} <= names


@pytest.mark.parametrize("name", NAMES)
def test_a_number_is_never_printed_as_a_double(world, name):
    """1.7e+15 would not be found again."""
    world.register("c", slots=3)
    world.admit(submission("a"))
    world.claim("c", 1, 1)
    world.run(example_calls()[name])
    for key, (value, _) in world.look().items():
        if key.startswith(("job:", "worker:", "fence", "fleet", "stats", "ctl:")):
            for text in value.values() if isinstance(value, dict) else [value]:
                assert not re.search(r"\de\+\d", str(text)), (key, text)
