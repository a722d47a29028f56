"""``deadq check`` on real servers."""

import json

import pytest

from deadq import Queue
from tests.commands import ROOT, deadq_command, started
from tests.servers import Server, binaries, wait_until

JOBS = """
from deadq import Queue

shop = Queue("shop", capacity=1000)
lax = Queue("shop", capacity=1000, allow_eviction=True)
bare = Queue("bare", capacity=10)

@shop.task(within=2.0)
async def pay(order: str) -> str:
    return order
"""


@pytest.fixture
def check(tmp_path):
    (tmp_path / "jobs.py").write_text(JOBS)

    def run(*args, url, code=0):
        done = deadq_command("check", *args, "--url", url, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (code, "")
        return done.stdout

    run.folder = tmp_path
    return run


def levels(said):
    return {f["about"]: f["level"] for f in json.loads(said)["findings"]}


def test_what_was_looked_at_is_printed(check, valkey_server):
    with valkey_server.client() as client:
        client.flushall()
        version = client.info("server")["valkey_version"]
    said = check("jobs:shop", "--rate", "10", url=valkey_server.url)
    for line in (
        "queue shop",
        f"ok      version: Valkey {version}",
        "ok      eviction: noeviction",
        "warning persistence: no append-only file",
        "-> appendonly yes, ",
        "ok      clock: ",
        "ok      rights: ",
        "ok      tasks: pay: within 2 s, not measured yet",
        "warning workers: nobody works on the queue",
        "warning memory: no job tells what one takes",
    ):
        assert line in said


def test_a_queue_at_work_is_judged_by_what_it_does(check, valkey_server):
    with valkey_server.client() as client:
        client.flushall()
    queue = Queue("shop", capacity=1000, url=valkey_server.url)

    @queue.task(within=2.0)
    async def pay(order: str) -> str: ...

    command = ("work", "jobs:shop", "--concurrency", "2", "--url", valkey_server.url)
    with started(*command, cwd=check.folder) as worker:
        try:
            wait_until(lambda: queue.stats().slots == 2, "the worker")
            for order in range(20):
                pay.call(str(order))
            judged = json.loads(check("jobs:shop", "--json", url=valkey_server.url))
            by_about = {f["about"]: f for f in judged["findings"]}
            assert "p95 0." in by_about["tasks"]["found"]
            assert by_about["workers"]["found"] == "2 slots"
            assert by_about["memory"]["found"].startswith("0 jobs a second, ")
            planned = check("jobs:shop", "--json", "--rate", "1e9", url=valkey_server.url, code=1)
            assert levels(planned)["memory"] == "fault"
            light = ("jobs:shop", "--json", "--rate", "1e3", "--bytes", "1")
            assert levels(check(*light, url=valkey_server.url))["memory"] == "ok"
            heavy = (*light[:-1], "1e9")
            assert levels(check(*heavy, url=valkey_server.url, code=1))["memory"] == "fault"
        finally:
            worker.terminate()
            worker.communicate(timeout=10)
            queue.close()


@pytest.mark.parametrize("version", ["valkey9", "redis62"])
def test_a_server_that_may_evict_is_at_fault_and_no_traceback(check, version):
    if version not in binaries():
        pytest.skip(f"this machine has no {version}")
    with Server(binaries()[version], config={"maxmemory-policy": "allkeys-lru"}) as server:
        assert levels(check("jobs:shop", "--json", url=server.url, code=1))["eviction"] == "fault"
        with server.client() as client:
            assert client.keys("*") == []
        lax = levels(check("jobs:lax", "--json", url=server.url, code=1))
        assert lax == lax | {"eviction": "warning", "tasks": "fault"}


def test_a_queue_without_tasks_is_at_fault(check, valkey_server):
    assert levels(check("jobs:bare", "--json", url=valkey_server.url, code=1))["tasks"] == "fault"


def test_with_an_append_only_file_it_says_what_a_power_loss_costs(check):
    with Server(binaries()["valkey9"], aof=True, config={"appendfsync": "always"}) as server:
        said = check("jobs:shop", "--rate", "1", url=server.url)
    assert "ok      persistence: append-only file, nothing acknowledged is lost" in said


def test_a_user_without_rights_is_at_fault(check):
    """He may run scripts, and not all that they do."""
    with Server(binaries()["valkey9"]) as server:
        with server.client() as client:
            client.acl_setuser(
                "clerk",
                enabled=True,
                passwords=["+pw"],
                keys=["deadq:{shop}:*"],
                channels=["deadq:{shop}:*"],
                commands=["+@all", "-zadd", "-rpush"],
            )
        url = server.url.replace("unix://", "unix://clerk:pw@")
        said = check("jobs:shop", "--json", url=url, code=1)
        (rights,) = [f for f in json.loads(said)["findings"] if f["about"] == "rights"]
        assert (rights["level"], rights["found"]) == ("fault", "the user may not run ZADD, RPUSH")


def test_a_trial_leaves_nothing_behind(check, valkey_server):
    with valkey_server.client() as client:
        client.flushall()
        check("jobs:shop", "--rate", "1", url=valkey_server.url)
        assert client.keys("*") == []


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["shop"], 2, "check looks at the queue's own settings: give MODULE:QUEUE"),
        (["jobs:nix"], 2, "no queue `nix` in module jobs; it has: "),
        (["jobs:shop", "--rate", "0"], 2, "rate must be more than 0"),
        (["jobs:shop", "--bytes", "nan"], 2, "bytes must be finite, not nan"),
        (["jobs:shop", "--url", "redis://127.0.0.1:1"], 1, "the server cannot be reached"),
    ],
)
def test_a_wrong_request_is_one_line(check, args, code, says):
    done = deadq_command("check", *args, cwd=check.folder)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


# A chain of calls.

CHAINS = ROOT / "tests" / "chains"


def check_chain(*args, code=0):
    """Where no server is."""
    done = deadq_command("check", *args, cwd=CHAINS, DEADQ_URL="unix:///nowhere/socket")
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


def test_a_chain_is_judged_without_a_server():
    said = check_chain("--chain", "fits.toml")
    assert "worst case end to end: 2.9 s of 3 s; amplification: 2 (calls of payment)" in said
    table = [line.split() for line in said.splitlines()]
    assert ["web", "3", "s", "2.9", "s", "1", "1", "1"] in table
    assert ["payment", "1", "s", "0", "s", "2", "1", "2"] in table
    for line in (
        "ok budget: the sum is within the edge's budget",
        "ok promise: no layer promises more than it receives",
        "ok retries: no two layers retry",
    ):
        assert line in said


@pytest.mark.parametrize(
    ("file", "says", "fine"),
    [
        ("promises_more.toml", "FAULT promise: checkout receives 2 s from gateway", 2),
        ("two_layers_retry.toml", "FAULT retries: web tries checkout 2 times, and", 2),
        ("beyond_the_budget.json", "FAULT budget: page has 10 s and can take 30 s", 2),
    ],
)
def test_a_chain_at_fault_is_told_with_its_reason_and_a_remedy(file, says, fine):
    said = check_chain("--chain", file, code=1)
    assert says in said
    assert "-> let " in said
    assert said.count("  ok ") == fine


def test_programs_get_the_figures_of_a_chain():
    told = json.loads(check_chain("--chain", "two_layers_retry.toml", "--json", code=1))
    (fault,) = told.pop("faults")
    assert (fault["kind"], fault["tier"]) == ("retries", "checkout")
    assert told.pop("tiers")[2] == {
        "tier": "payment",
        "receives_s": 1.0,
        "promises_s": 0.0,
        "tries": 3,
        "calls": 1,
        "calls_at_worst": 6,
    }
    assert told == {
        "budget_s": 10.0,
        "worst_s": 8.0,
        "amplification": 6.0,
        "most_amplified": "payment",
    }


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "name what to check: give MODULE:QUEUE, --chain FILE or --sql URL"),
        (["--chain", "none.toml"], "--chain: cannot read none.toml: No such file or directory"),
        (["--chain", "."], "--chain: cannot read .: Is a directory"),
        (
            ["--chain", "odd.toml"],
            "odd.toml: tier web: unknown field 'timeout': it takes timeout_s,",
        ),
        (["jobs:shop", "--chain", "fits.toml"], "--chain FILE stands alone: without MODULE:QUEUE"),
        (["--rate", "5", "--chain", "fits.toml"], "--chain FILE stands alone"),
        (["--bytes", "5", "--chain", "fits.toml"], "--chain FILE stands alone"),
        (["--url", "redis://h", "--chain", "fits.toml"], "--chain FILE stands alone"),
    ],
)
def test_a_wrong_request_to_check_a_chain_is_one_line(tmp_path, args, says):
    (tmp_path / "odd.toml").write_text("budget_s = 1\n[tiers.web]\ntimeout = 1\n")
    done = deadq_command("check", *args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


# The table of the unit ledger.


def check_table(url, *args, code=0):
    """Where no queue is."""
    done = deadq_command("check", "--sql", url, *args, cwd=CHAINS, DEADQ_URL="unix:///nowhere/s")
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


@pytest.fixture(params=["postgresql", "postgres", "postgresql+psycopg", "sqlite"])
def database(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/bank.db"
    return request.getfixturevalue("postgres").url.replace("postgresql", request.param, 1)


def test_the_table_of_units_is_looked_at_and_made(database):
    said = check_table(database, "--create")
    assert "ok made: deadq_units" in said
    assert "CREATE TABLE IF NOT EXISTS deadq_units (" in said
    assert "ok table: deadq_units is there" in said
    told = json.loads(check_table(database, "--json"))
    assert told.pop("ddl").startswith("CREATE TABLE IF NOT EXISTS deadq_units (")
    dialect = "sqlite" if database.startswith("sqlite") else "postgresql"
    assert told == {"dialect": dialect, "table": "deadq_units", "fault": None, "made": False}


def test_a_database_without_the_table_of_units_is_at_fault(postgres):
    said = check_table(postgres.url, code=1)
    assert 'FAULT table: relation "deadq_units" does not exist' in said
    assert "-> run it with --create, or the statement above" in said


def test_a_table_of_units_that_will_not_do_is_at_fault(postgres):
    with postgres.connect() as conn:
        conn.execute("CREATE TABLE deadq_units (job text, unit text, fence int)")
    assert "fingerprint" in check_table(postgres.url, "--create", code=1)
    with postgres.connect() as conn:
        conn.execute("DROP TABLE deadq_units")
    check_table(postgres.url, "--create")
    with postgres.connect() as conn:
        conn.execute("ALTER TABLE deadq_units DROP CONSTRAINT deadq_units_pkey")
        assert "unique or exclusion" in check_table(postgres.url, code=1)
        conn.execute("CREATE UNIQUE INDEX ON deadq_units (job, unit)")
        check_table(postgres.url)
        conn.execute("ALTER TABLE deadq_units ALTER fence TYPE int")
        assert "out of range" in check_table(postgres.url, code=1)
        assert conn.execute("SELECT count(*) FROM deadq_units").fetchone() == (0,)


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--create"], 2, "--create needs --sql URL"),
        (["jobs:shop", "--sql", "sqlite:///x.db"], 2, "--sql URL stands alone"),
        (["--sql", "sqlite:///x.db", "--url", "redis://h"], 2, "--sql URL stands alone"),
        (["--sql", "mysql://h/x"], 2, "--sql takes postgresql://USER@HOST/DATABASE or sqlite:///"),
        (["--sql", "x.db"], 2, "--sql takes postgresql://"),
        (["--sql", "sqlite://"], 2, "--sql takes postgresql://"),
        (["--sql", "sqlite:///x.db"], 1, "no such file: x.db; with --create it is made"),
        (["--sql", "sqlite:///no/x.db", "--create"], 1, "unable to open database file"),
        (["--sql", "sqlite:////"], 1, "unable to open database file"),
        (["--sql", "postgresql://u:secret@127.0.0.1:1/x"], 1, "connection failed"),
        (["--sql", "postgresql://h/x?odd=1"], 2, "--sql: invalid "),
    ],
)
def test_a_wrong_request_to_check_a_database_is_one_line(tmp_path, args, code, says):
    done = deadq_command("check", *args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert "secret" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
