"""What retry, aretry, ahedge and a breaker may stand above, and what they refuse there."""

import asyncio
import functools

import pytest

from deadq.resilience import Backoff, Breaker, ahedge, aretry, retry

AT_ONCE = Backoff("none")


async def fails():
    raise ConnectionError


class Once:
    """Fails at the first call."""

    def __init__(self):
        self.calls = 0

    async def __call__(self):
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError
        return self.calls


class Items:
    def __call__(self):
        yield 1


class AsyncItems:
    async def __call__(self):
        yield 1


def gives():
    yield 1


def nested(fn):
    return functools.partial(staticmethod(functools.partial(fn)))


AS_COROUTINES = [
    lambda fn: fn,
    functools.partial,
    staticmethod,
    nested,
    lambda fn: fn.__call__,
]


@pytest.mark.parametrize("form", AS_COROUTINES)
def test_what_is_called_like_a_coroutine_function_is_tried_again(form):
    assert asyncio.run(aretry(backoff=AT_ONCE)(form(Once()))()) == 2
    with pytest.raises(TypeError, match="is a coroutine function: use @aretry"):
        retry()(form(Once()))


@pytest.mark.parametrize("form", AS_COROUTINES)
def test_it_may_be_hedged(form):
    once = Once()
    once.calls = 1
    assert asyncio.run(ahedge(delay=0.5)(form(once))()) == 2


@pytest.mark.parametrize("form", AS_COROUTINES)
def test_a_breaker_guards_what_it_does(form):
    seen = []
    breaker = Breaker(failures=lambda error: seen.append(error) or True)
    with pytest.raises(ConnectionError):
        asyncio.run(breaker(form(Once()))())
    assert len(seen) == 1


@pytest.mark.parametrize(
    "odd", [5, None, classmethod(fails), property(fails), "f"], ids=lambda odd: type(odd).__name__
)
@pytest.mark.parametrize("what", [retry, aretry, ahedge, Breaker])
def test_what_is_no_function_is_refused_where_it_is_declared(what, odd):
    with pytest.raises(TypeError, match="a function, not"):
        what()(odd)


@pytest.mark.parametrize(
    "of", [gives, staticmethod(gives), functools.partial(gives), Items(), AsyncItems(),
           nested(Items())]
)  # fmt: skip
@pytest.mark.parametrize("what", [retry, aretry, Breaker])
def test_whatever_is_a_generator_is_refused(what, of):
    with pytest.raises(TypeError, match="is a generator: put"):
        what()(of)


@pytest.mark.parametrize("what", [retry, Breaker])
def test_a_plain_function_that_only_makes_a_coroutine_is_refused_when_called(what):
    @what()
    def call():
        return fails()

    with pytest.raises(TypeError, match="gave a coroutine, which has not run yet"):
        call()


@pytest.mark.parametrize("what", [retry, Breaker])
def test_a_class_and_a_builtin_are_functions(what):
    assert what()(int)("5") == 5
    assert what()(len)("five") == 4
    assert what()(functools.cache(lambda: 3))() == 3
