"""C53, in jobs: what the queue tries again, when, how often, and what calls below may do."""

from itertools import pairwise

import pytest

from deadq import JobFailed, Retry, State, StoreUnavailable
from deadq.resilience import Allowance, Backoff, BudgetRule, outgoing, pass_on, retry
from tests.shifts import in_processes_too

KINDS = {
    "reset": ConnectionResetError,
    "timeout": TimeoutError,
    "away": lambda: StoreUnavailable("away"),
    "value": ValueError,
    "key": KeyError,
    "later": lambda: hinted(0.5),
    "soon": lambda: hinted(0.0),
}


def made(kind):
    return KINDS[kind]()


def hinted(seconds):
    error = ConnectionResetError("busy")
    error.retry_after = seconds
    return error


def declare(queue, book):
    backoff = Backoff("none").delay

    @queue.task(within=20.0, retries=2, backoff=backoff)
    async def fails(kind):
        book.note("start")
        raise made(kind)

    @queue.task(within=20.0, backoff=backoff)
    async def fails_once(kind):
        book.note("start")
        raise made(kind)

    @queue.task(within=20.0, retries=2, retry_on=KeyError, backoff=backoff)
    async def chosen(kind):
        book.note("start")
        raise made(kind)

    @queue.task(within=20.0, retries=3, backoff=backoff)
    async def asks():
        raise Retry

    @queue.task(within=20.0, retries=1)
    async def tells():
        with pass_on(5) as passed:
            said = outgoing(), passed.left
        return [outgoing(), Allowance.current().left, *said]

    @queue.task(within=20.0)
    async def edge():
        return Allowance.current() is None

    @queue.task(within=20.0, retries=2)
    async def parent(said):
        bound = queue.tasks["child"].options(key="child", retries=said)
        await (bound if said is not None else queue.tasks["child"].options(key="child")).aenqueue()

    @queue.task(within=20.0, retries=2)
    async def child():
        return Allowance.current().most

    @queue.task(within=20.0, retries=1, backoff=backoff)
    async def tries_inside():
        book.note("start")

        @retry(tries=3, backoff=Backoff("none"))
        def call():
            book.note("call")
            raise ConnectionResetError

        call()


def declare_plain(queue, book):
    backoff = Backoff("none").delay

    @queue.task(within=20.0, retries=2, backoff=backoff)
    def fails(kind):
        book.note("start")
        raise made(kind)

    @queue.task(within=20.0, backoff=backoff)
    def fails_once(kind):
        book.note("start")
        raise made(kind)

    @queue.task(within=20.0, retries=2, retry_on=KeyError, backoff=backoff)
    def chosen(kind):
        book.note("start")
        raise made(kind)

    @queue.task(within=20.0, retries=3, backoff=backoff)
    def asks():
        raise Retry

    @queue.task(within=20.0, retries=1)
    def tells():
        with pass_on(5) as passed:
            said = outgoing(), passed.left
        return [outgoing(), Allowance.current().left, *said]

    @queue.task(within=20.0)
    def edge():
        return Allowance.current() is None

    @queue.task(within=20.0, retries=2)
    def parent(said):
        bound = queue.tasks["child"].options(key="child", retries=said)
        (bound if said is not None else queue.tasks["child"].options(key="child")).enqueue()

    @queue.task(within=20.0, retries=2)
    def child():
        return Allowance.current().most

    @queue.task(within=20.0, retries=1, backoff=backoff)
    def tries_inside():
        book.note("start")

        @retry(tries=3, backoff=Backoff("none"))
        def call():
            book.note("call")
            raise ConnectionResetError

        call()


PLAIN = {declare: declare_plain}
pytestmark = in_processes_too


def failed(made, task, *args, key):
    handle = getattr(made.tasks, task).options(key=key).enqueue(*args)
    with pytest.raises(JobFailed):
        handle.result(timeout=10)
    return handle.state(), made.book.starts().get(key, 0)


def test_what_may_pass_by_itself_is_tried_again_and_nothing_else(scene):
    made = scene(declare)
    made.worker()
    for kind in ("reset", "timeout", "away"):
        assert failed(made, "fails", kind, key=kind) == (State.EXHAUSTED, 3)
        assert failed(made, "fails_once", kind, key=f"{kind} once") == (State.FAILED, 1)
    for kind in ("value", "key"):
        assert failed(made, "fails", kind, key=kind) == (State.FAILED, 1)
    assert made.stat("retry_denied:tries") == 3
    assert made.stat("retry_denied:permanent") == 2


def test_retry_on_names_the_exceptions_instead(scene):
    made = scene(declare)
    made.worker()
    assert failed(made, "chosen", "key", key="k") == (State.EXHAUSTED, 3)
    assert failed(made, "chosen", "reset", key="r") == (State.FAILED, 1)


def test_who_asks_to_wait_is_obeyed(scene):
    made = scene(declare)
    made.worker()
    for kind, least in (("later", 0.5), ("soon", 0.0)):
        assert failed(made, "fails", kind, key=kind) == (State.EXHAUSTED, 3)
        instants = [note.at for note in made.book.notes("start", kind)]
        assert all(later - sooner >= least for sooner, later in pairwise(instants))


def test_the_fleets_budget_ends_it(scene):
    made = scene(declare, retry_budget=BudgetRule(ratio=0, floor=0.2))
    made.worker()
    for number in range(3):
        with pytest.raises(JobFailed):
            made.tasks.asks.options(key=f"{number}").call()
    assert made.stat("retried") == 2
    assert made.stat("retry_denied:budget") == 3


def test_what_is_called_in_a_job_that_is_retried_gets_nothing_unless_it_is_said(scene):
    made = scene(declare)
    made.worker()
    assert made.tasks.tells.call() == ["0", 0, "1", 1]
    assert made.tasks.tells.options(retries=9).call() == ["0", 0, "5", 5]
    assert made.tasks.edge.call() is True
    with Allowance(0).scope():
        assert made.tasks.edge.call() is False


@pytest.mark.parametrize(("said", "retries"), [(None, 0), (1, 1), (7, 2)])
def test_a_job_of_a_job_gets_no_more_than_is_left(scene, said, retries):
    made = scene(declare)
    made.worker()
    made.tasks.parent.call(said)
    assert made.tasks.child.options(key="child").call() == retries


def test_one_layer_retries_of_two_that_could(scene):
    made = scene(declare)
    made.worker()
    state, starts = failed(made, "tries_inside", key="k")
    assert (state, starts) == (State.EXHAUSTED, 2)
    assert len(made.book.notes("call")) == 2
