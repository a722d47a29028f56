"""Chains of calls: the arithmetic, the three faults, and descriptions that are none."""

import copy
import json
import math
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadq import testing
from deadq.resilience import ChainFaultKind
from deadq.resilience.chain import Call, counted, judge
from deadq.resilience.chain_description import chain_of
from deadq.resilience.chain_file import read_chain
from tests.workers import ROOT

EXAMPLES = ROOT / "tests" / "chains"
BUDGET, PROMISE, RETRIES = ChainFaultKind.BUDGET, ChainFaultKind.PROMISE, ChainFaultKind.RETRIES


def judged(budget_s=1_000, **tiers):
    return judge(chain_of({"budget_s": budget_s, "tiers": tiers}))


def figures(verdict):
    return {tier.tier: tier for tier in verdict.tiers}


def layers(count, tries):
    """One tier below the other, each tried by the one above it; the edge beside."""
    names = ["edge", *(f"layer {n}" for n in range(1, count + 1))]
    return {
        name: ({"timeout_s": 1, "tries": tries} if n else {}) | {"calls": names[n + 1 : n + 2]}
        for n, name in enumerate(names)
    }


# The arithmetic.


def test_three_services_two_tries_of_5_s_make_30_s():
    service = {"timeout_s": 5, "tries": 2}
    verdict = judged(page={"calls": ["a", "b", "c"]}, a=service, b=service, c=service)
    assert verdict.worst_s == 30
    assert judged(page={"calls": [["a", "b", "c"]]}, a=service, b=service, c=service).worst_s == 10


@pytest.mark.parametrize(("tries", "calls"), [(1, 1), (2, 8), (3, 27), (4, 64)])
def test_three_layers_multiply_their_tries(tries, calls):
    verdict = judged(**layers(3, tries))
    assert figures(verdict)["layer 3"].calls_at_worst == calls
    assert verdict.most_amplified.amplification == calls


def test_five_layers_of_three_tries_make_243_calls():
    assert judged(**layers(5, 3)).most_amplified.amplification == 243


@pytest.mark.parametrize(
    ("calls", "worst_s"),
    [
        (["a"], 2.0),
        (["a", "a"], 4.0),
        ([{"tier": "a", "times": 3}], 6.0),
        ([{"tier": "a", "tries": 2}], 4.0),
        ([{"tier": "a", "tries": 3, "backoff_s": 0.5}], 7.0),
        ([{"tier": "a", "backoff_s": 0.5}], 2.0),
        ([{"tier": "a", "timeout_s": 0.5}], 0.5),
        ([{"tier": "a", "times": 2, "timeout_s": 1, "tries": 2, "backoff_s": 0.25}], 4.5),
        (["a", "b"], 3.0),
        ([["a", "b"]], 2.0),
        ([[{"tier": "a", "times": 9}]], 2.0),
        ([["a", {"tier": "b", "tries": 5}]], 5.0),
        (["b", ["a", "b"], "b"], 4.0),
        ([], 0.0),
    ],
)
def test_calls_add_up_unless_they_are_made_at_the_same_time(calls, worst_s):
    tiers = {"edge": {"calls": calls}, "a": {"timeout_s": 2.0}, "b": {"timeout_s": 1.0}}
    used = json.dumps(calls)
    assert judged(
        **{name: tier for name, tier in tiers.items() if name == "edge" or f'"{name}"' in used}
    ).worst_s == pytest.approx(worst_s)


def test_what_a_tier_needs_itself_counts():
    verdict = judged(edge={"work_s": 0.5, "calls": ["a"]}, a={"timeout_s": 1, "work_s": 0.25})
    assert verdict.worst_s == 1.5
    assert figures(verdict)["a"].promises_s == 0.25


def test_each_field_of_a_call_stands_before_that_of_its_tier():
    verdict = judged(
        edge={"calls": ["a", {"tier": "a", "timeout_s": 3, "tries": 4, "backoff_s": 1}]},
        a={"timeout_s": 2, "tries": 2, "backoff_s": 0.5},
    )
    assert verdict.worst_s == 4.5 + 15
    assert figures(verdict)["a"] == ("a", 2, 0, 4, 2, 6)


@st.composite
def chains(draw):
    """Descriptions of up to five tiers, in which those further down are called from above."""
    count = draw(st.integers(1, 5))
    names = [f"t{n}" for n in range(count)]
    numbers = st.integers(1, 3)
    tiers = {}
    for n, name in enumerate(names):
        below = names[n + 1 :]
        # each tier is called by the one above it at least, so that there is one edge
        picked = below[:1] + (draw(st.lists(st.sampled_from(below), max_size=3)) if below else [])
        calls = [
            {"tier": callee, "times": draw(numbers), "tries": draw(numbers)} for callee in picked
        ]
        if len(calls) > 1 and draw(st.booleans()):
            calls = [calls[0], calls[1:]]
        tiers[name] = {"work_s": draw(st.sampled_from([0, 0.1, 0.5])), "calls": calls}
        if n:
            tiers[name]["timeout_s"] = draw(st.sampled_from([0.1, 0.3, 1, 5, 20, 100]))
            tiers[name]["backoff_s"] = draw(st.sampled_from([0, 0.1, 1]))
    order = draw(st.permutations(names))
    budget_s = draw(st.sampled_from([0.2, 1, 10, 100, 1_000]))
    return {"budget_s": budget_s, "tiers": {name: tiers[name] for name in order}}


def followed(tiers, name, path=()):
    """Every way down from a tier: the calls on it, each with who makes it."""
    yield path
    for step in tiers[name]["calls"]:
        for call in step if isinstance(step, list) else [step]:
            yield from followed(tiers, call["tier"], (*path, (name, call)))


def longest(tiers, name):
    def of(call):
        callee = tiers[call["tier"]]
        tries = call["tries"]
        return tries * callee["timeout_s"] + (tries - 1) * callee["backoff_s"]

    return tiers[name]["work_s"] + sum(
        max(map(of, step)) if isinstance(step, list) else step["times"] * of(step)
        for step in tiers[name]["calls"]
    )


@settings(deadline=None)
@given(description=chains())
def test_the_figures_are_those_of_every_way_down(description):
    tiers = description["tiers"]
    verdict = judge(chain_of(copy.deepcopy(description)))
    ways = list(followed(tiers, "t0"))
    for tier in verdict.tiers:
        down = [way for way in ways if (way[-1][1]["tier"] if way else "t0") == tier.tier]
        assert tier.calls == sum(math.prod(c["times"] for _, c in way) for way in down)
        assert tier.calls_at_worst == sum(
            math.prod(c["times"] * c["tries"] for _, c in way) for way in down
        )
        assert tier.tries == max((way[-1][1]["tries"] for way in down if way), default=1)
        assert tier.promises_s == pytest.approx(longest(tiers, tier.tier))
    assert verdict.tiers[0].tier == "t0"
    assert verdict.worst_s == pytest.approx(longest(tiers, "t0"))
    found = {fault.kind for fault in verdict.faults}
    assert (BUDGET in found) == (longest(tiers, "t0") > description["budget_s"] + 1e-6)
    assert (PROMISE in found) == any(
        longest(tiers, name) > tiers[name]["timeout_s"] + 1e-6 for name in tiers if name != "t0"
    )
    assert (RETRIES in found) == any(sum(c["tries"] > 1 for _, c in way) > 1 for way in ways)


# The faults.


@pytest.mark.parametrize(
    ("file", "kind", "reason"),
    [
        (
            "promises_more.toml",
            PROMISE,
            "checkout receives 2 s from gateway and promises 5 s: payment 5 s",
        ),
        (
            "two_layers_retry.toml",
            RETRIES,
            "web tries checkout 2 times, and checkout tries payment 3 times: payment can get 6",
        ),
        (
            "beyond_the_budget.json",
            BUDGET,
            "page has 10 s and can take 30 s: profile 2 x 5 s + cart 2 x 5 s + offers 2 x 5 s",
        ),
    ],
)
def test_each_example_that_fails_has_its_one_reason(file, kind, reason):
    (fault,) = judge(read_chain(EXAMPLES / file)).faults
    assert fault.kind == kind
    assert fault.reason.removesuffix(" calls for one request") == reason
    assert fault.remedy


def test_the_example_that_fits_has_no_fault():
    verdict = judge(read_chain(EXAMPLES / "fits.toml"))
    assert verdict.faults == ()
    assert verdict.worst_s == pytest.approx(2.9)
    assert (verdict.most_amplified.tier, verdict.most_amplified.amplification) == ("payment", 2)


def test_there_are_three_examples_that_fail_and_one_that_fits():
    verdicts = [judge(read_chain(path)) for path in sorted(EXAMPLES.iterdir())]
    assert sorted(len(verdict.faults) for verdict in verdicts) == [0, 1, 1, 1]


def faults(kind, verdict):
    return [fault.reason for fault in verdict.faults if fault.kind is kind]


def test_as_much_as_is_received_may_be_promised():
    """0.1 + 0.2 s are 0.3 s."""
    thirds = {"a": {"timeout_s": 0.1}, "b": {"timeout_s": 0.2}}
    assert not judged(0.3, edge={"calls": ["a", "b"]}, **thirds).faults
    assert faults(BUDGET, judged(0.299, edge={"calls": ["a", "b"]}, **thirds))
    middle = {"timeout_s": 0.3, "calls": ["a", "b"]}
    assert not judged(edge={"calls": ["middle"]}, middle=middle, **thirds).faults


def test_a_tier_is_judged_by_each_of_its_callers():
    verdict = judged(
        edge={"calls": ["a", {"tier": "b", "timeout_s": 5}]},
        a={"timeout_s": 9, "calls": [{"tier": "b", "timeout_s": 1}]},
        b={"calls": ["c"]},
        c={"timeout_s": 2},
    )
    assert faults(PROMISE, verdict) == ["b receives 1 s from a and promises 2 s: c 2 s"]
    assert figures(verdict)["b"].receives_s == 1


def test_calls_that_are_alike_are_one_fault():
    verdict = judged(edge={"calls": ["a", "a", "a"]}, a={"timeout_s": 1, "work_s": 2})
    assert len(verdict.faults) == 1


def test_a_tier_whose_own_work_takes_too_long_promises_too_much():
    verdict = judged(edge={"calls": ["a"]}, a={"timeout_s": 1, "work_s": 1.5})
    assert faults(PROMISE, verdict) == [
        "a receives 1 s from edge and promises 1.5 s: its own work 1.5 s"
    ]


def test_neighbours_may_both_be_tried_again():
    twice = {"timeout_s": 1, "tries": 2}
    assert not judged(edge={"calls": ["a", ["b", "c"]]}, a=twice, b=twice, c=twice).faults


def test_layers_that_retry_are_found_across_those_that_do_not():
    tiers = layers(4, 1)
    tiers["layer 1"]["tries"] = tiers["layer 4"]["tries"] = 2
    (reason,) = faults(RETRIES, judged(**tiers))
    assert reason.startswith("edge tries layer 1 2 times, and layer 3 tries layer 4 2 times: ")
    assert reason.endswith("layer 4 can get 4 calls for one request")


def test_it_is_enough_that_one_way_down_retries_twice():
    verdict = judged(
        edge={"calls": [{"tier": "a", "tries": 2}, "b"]},
        a={"timeout_s": 5, "calls": ["b"]},
        b={"timeout_s": 2, "calls": [{"tier": "c", "tries": 2}]},
        c={"timeout_s": 1},
    )
    (reason,) = faults(RETRIES, verdict)
    assert "edge tries a 2 times, and b tries c 2 times: c can get 6 calls" in reason
    assert figures(verdict)["c"].amplification == 3.0


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        (["a"], "a 2 s"),
        ([{"tier": "a", "tries": 2}], "a 2 x 2 s"),
        ([{"tier": "a", "times": 3}], "a 3 x 2 s"),
        (
            [{"tier": "a", "times": 3, "tries": 2, "backoff_s": 0.1}],
            "a 3 x (2 x 2 s + 0.1 s)",
        ),
        (
            [[{"tier": "a", "times": 2, "tries": 3}, "a"]],
            "a 3 x 2 s (with 2 more at the same time)",
        ),
        ([["a"]], "a 2 s"),
        (["a"] * 8, "a 2 s + a 2 s + a 2 s + a 2 s + a 2 s + 3 more"),
    ],
)
def test_a_sum_is_told(calls, told):
    (reason,) = faults(BUDGET, judged(0.1, edge={"calls": calls}, a={"timeout_s": 2}))
    assert reason.partition(": ")[2] == told


def test_the_longest_chain_can_be_told():
    tiers = layers(99, 100)
    verdict = judged(**tiers)
    lowest = figures(verdict)["layer 99"]
    assert lowest.calls_at_worst == 100**99
    assert lowest.amplification == pytest.approx(1e198)
    assert faults(RETRIES, verdict)[-1].endswith("layer 99 can get 10^198 calls for one request")
    assert (counted(999_999_999), counted(1_000_000_000)) == ("999,999,999", "10^9")


# What is no description of a chain.

GOOD = {
    "budget_s": 3,
    "tiers": {"web": {"calls": ["payment"]}, "payment": {"timeout_s": 1, "tries": 2}},
}


def changed(**changes):
    """GOOD, with fields replaced: ``payment__tries=0``; None leaves one out."""
    description = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *way, field = path.split("__")
        table = description
        for name in ["tiers", *way] if way else []:
            table = table[name]
        table[field] = value
        if value is None:
            del table[field]
    return description


@pytest.mark.parametrize(
    ("description", "says"),
    [
        ([], "the description must be a table of budget_s, tiers, not []"),
        (changed(budget_s=None), "budget_s is missing: say how long whoever calls the edge waits"),
        (changed(budget_s=0), "budget_s must be more than 0 seconds, not 0"),
        (changed(budget_s=math.nan), "budget_s must be finite, not nan; give a number of seconds"),
        (changed(budget_s="3"), "budget_s must be a number of seconds, not str '3'"),
        (changed(budget_s=True), "budget_s must be a number of seconds, not bool True"),
        (changed(budget_s=1e9), "budget_s 1e+09 s is longer than a year: give seconds"),
        (changed(budget=3), "the description: unknown field 'budget': it takes budget_s, tiers"),
        (changed(tiers=None), "tiers is missing: describe each in a table of its own"),
        (changed(tiers=[]), "tiers must be tables, [tiers.NAME], not []"),
        (changed(tiers={}), "tiers must be tables, [tiers.NAME], not {}"),
        (changed(tiers={"a\nb": {}}), r"a tier's name must be 1 to 60 printable characters, not"),
        (changed(tiers={"": {}}), "a tier's name must be 1 to 60 printable characters, not ''"),
        (changed(tiers={f"t{n}": {} for n in range(101)}), "101 tiers are too many"),
        (changed(web=5), "unknown field 'web'"),
        (changed(payment__timeout=1), "tier payment: unknown field 'timeout': it takes timeout_s,"),
        (
            changed(payment__timeout_s=None),
            "tier payment: timeout_s is missing: say how long web waits for one try of it (s)",
        ),
        (changed(payment__timeout_s=-1), "tier payment: timeout_s must be more than 0 seconds"),
        (changed(payment__timeout_s=math.nan), "tier payment: timeout_s must be finite, not nan"),
        (changed(payment__timeout_s="1"), "tier payment: timeout_s must be a number of seconds"),
        (changed(payment__tries=0), "tier payment: tries must be a whole number from 1 to 100"),
        (changed(payment__tries=1.5), "tries must be a whole number from 1 to 100, not 1.5"),
        (changed(payment__tries=True), "tries must be a whole number from 1 to 100, not True"),
        (changed(payment__tries=10**400), "tier payment: tries must be a whole number"),
        (changed(payment__backoff_s=-0.1), "tier payment: backoff_s must be 0 or more seconds"),
        (changed(payment__work_s=math.inf), "tier payment: work_s must be finite, not inf"),
        (changed(payment__calls="web"), "tier payment: calls must be a list, such as"),
        (changed(payment__calls={"tier": "web"}), "tier payment: calls must be a list, such as"),
        (
            changed(web__calls=["paymant"]),
            "calls names the unknown tier 'paymant': describe it, or name one of those described",
        ),
        (changed(web__calls=[7]), "tier web: a call must be a table of tier, times, timeout_s,"),
        (changed(web__calls=[{}]), "tier web: a call's tier is missing: name the tier"),
        (changed(web__calls=[[]]), "tier web: calls holds an empty list: leave it out"),
        (changed(web__calls=[[["payment"]]]), "tier web: a call must be a table of tier, times"),
        (
            changed(web__calls=[{"tier": "payment", "time": 2}]),
            "tier web: a call: unknown field 'time': it takes tier, times, timeout_s, tries, back",
        ),
        (
            changed(web__calls=[{"tier": "payment", "times": 0}]),
            "tier web: its call of payment: times must be a whole number from 1 to 1,000, not 0",
        ),
        (
            changed(web__calls=[{"tier": "payment", "timeout_s": math.nan}]),
            "tier web: its call of payment: timeout_s must be finite, not nan",
        ),
        (
            changed(payment__calls=["web"]),
            "tiers call each other in a circle, web -> payment -> web: leave one of these",
        ),
        (changed(web__calls=["web"]), "in a circle, web -> web: leave one of these calls out"),
        (
            changed(web__calls=[]),
            "no tier calls web or payment, and one alone can be the edge: leave the others out",
        ),
        (
            changed(web__timeout_s=2),
            "tier web: timeout_s says how a tier is called, and no tier calls this one: leave it",
        ),
        (changed(web__tries=2), "tier web: tries says how a tier is called"),
    ],
    ids=lambda value: value[:50] if isinstance(value, str) else "",
)
def test_what_is_odd_is_told_with_its_place_and_the_remedy(description, says):
    with pytest.raises(ValueError) as odd:
        chain_of(description)
    assert says in str(odd.value)
    assert str(odd.value).isprintable()


def test_what_the_calls_override_is_checked_all_the_same():
    calls = [{"tier": "payment", "timeout_s": 1, "tries": 2, "backoff_s": 0}]
    for field, value in (("timeout_s", -1), ("tries", "x"), ("backoff_s", math.nan)):
        with pytest.raises(ValueError, match=f"tier payment: {field} must be"):
            chain_of(changed(web__calls=calls, **{f"payment__{field}": value}))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
fields = st.sampled_from(
    ["budget_s", "tiers", "timeout_s", "tries", "work_s", "calls", "tier", "a"]
)
anything = st.recursive(
    scalars | fields,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    description=anything
    | st.fixed_dictionaries({"budget_s": st.just(1), "tiers": st.dictionaries(fields, anything)})
)
def test_whatever_is_described_is_a_chain_or_an_error_of_one_line(description):
    said = ""
    try:
        judge(chain_of(description))
    except ValueError as odd:
        said = str(odd)
    assert said.isprintable()
    assert len(said) < 1_000


# Files.


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("chain.toml", "budget_s = ", "no TOML: Invalid value"),
        ("chain.toml", "", "budget_s is missing"),
        ("chain.toml", "budget_s = 3\nbudget_s = 4\n", "no TOML: Cannot overwrite a value"),
        ("chain.toml", f"budget_s = {'9' * 5_000}", "Exceeds the limit"),
        ("chain.toml", "tiers = " + "[" * 9_000, "chain.toml: "),
        ("chain.json", "budget_s = 3", "no JSON: Expecting value: line 1 column 1"),
        ("chain.txt", ' {"budget_s": 3,}', "no JSON: "),
        ("chain.json", '{"budget_s": 3, "budget_s": 4}', "'budget_s' stands there twice"),
        ("chain.json", '{"budget_s": NaN, "tiers": {}}', "budget_s must be finite, not nan"),
        ("chain.json", "[" * 100_000, "chain.json: its lists are nested too deeply"),
        ("chain.json", "#" * 1_000_001, "larger than 1,000,000 bytes"),
        ("chain.toml", b"budget_s = 3 # \xff", "can't decode byte 0xff"),
    ],
)
def test_a_file_that_describes_no_chain_is_named_with_its_fault(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError) as odd:
        read_chain(path)
    assert str(odd.value).startswith(f"{path}: ")
    assert says in str(odd.value)


def test_json_and_toml_say_the_same(tmp_path):
    (tmp_path / "chain.json").write_text(json.dumps(GOOD))
    (tmp_path / "bom").write_text("\ufeff" + json.dumps(GOOD, indent=1))
    (tmp_path / "chain.toml").write_text(
        "budget_s = 3\n[tiers]\nweb.calls = ['payment']\npayment = {timeout_s = 1, tries = 2}\n"
    )
    chains = [read_chain(path) for path in sorted(tmp_path.iterdir())]
    assert chains == [chain_of(GOOD)] * 3


# In tests.


def test_a_chain_that_fits_lets_a_test_pass_and_tells_its_figures():
    for description in (EXAMPLES / "fits.toml", str(EXAMPLES / "fits.toml"), GOOD):
        assert testing.assert_chain(description).worst_s <= 3.0


def test_a_chain_at_fault_fails_a_test_with_each_fault_in_a_line():
    two = changed(budget_s=1, payment__calls=["bank"], bank={})
    two["tiers"]["bank"] = {"timeout_s": 5}
    del two["bank"]
    with pytest.raises(AssertionError) as failure:
        testing.assert_chain(two)
    assert str(failure.value).splitlines() == [
        "the chain is at fault:",
        "  budget: web has 1 s and can take 2 s: payment 2 x 1 s",
        "    -> let timeouts be shorter, tries fewer, or calls be made at the same time",
        "  promise: payment receives 1 s from web and promises 5 s: bank 5 s",
        "    -> let payment promise 1 s at most: what it does later is for nobody",
    ]
    path = EXAMPLES / "two_layers_retry.toml"
    with pytest.raises(
        AssertionError, match=rf"the chain {path} is at fault:\n  retries: web tries"
    ):
        testing.assert_chain(path)


def test_what_is_no_chain_is_no_failed_assertion(tmp_path):
    with pytest.raises(ValueError, match="budget_s is missing"):
        testing.assert_chain({})
    with pytest.raises(FileNotFoundError):
        testing.assert_chain(tmp_path / "none.toml")


def test_pytest_shows_the_faults_and_not_the_helper(tmp_path):
    (tmp_path / "test_mine.py").write_text(
        "from deadq.testing import assert_chain\n\n"
        f"def test_chain():\n    assert_chain({str(EXAMPLES / 'promises_more.toml')!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "promise: checkout receives 2 s from gateway and promises 5 s" in done.stdout
    assert "def assert_chain" not in done.stdout


def test_what_a_tier_promises_is_summed_once_and_not_for_each_that_calls_it(monkeypatch):
    """Descriptions of many calls would otherwise take minutes."""
    summed, found = [], Call.longest_s

    def counting(call):
        summed.append(call)
        return found.fget(call)

    monkeypatch.setattr(Call, "longest_s", property(counting))
    grants = {"timeout_s": 1.0, "tries": 2}
    verdict = judged(
        a={"calls": ["b"] * 300},
        b={**grants, "calls": ["c"] * 300},
        c={**grants, "calls": ["d"] * 300},
        d=grants,
    )
    assert verdict.faults
    assert len(summed) < 10 * 900
