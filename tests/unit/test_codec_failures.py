"""Whatever a handler raises becomes three bounded texts, and nothing escapes on the way."""

import asyncio
import tracemalloc

import pytest

from deadq.codec import DecodeError, describe_exception, encode, read_exception


def nested(levels, wrap, inner):
    for _ in range(levels):
        inner = wrap(inner)
    return inner


class CardDeclined(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)


class Unreadable(Exception):
    def __init__(self, raised):
        super().__init__()
        self.raised = raised

    def __str__(self):
        raise self.raised

    __repr__ = __str__


class Quit(BaseException):
    pass


def described(exc, **options):
    data = describe_exception(exc, **options)
    assert len(data) <= options.get("limit", 8192)
    return read_exception(data)


def caught(raises, *args):
    try:
        raises(*args)
    except BaseException as exc:
        return exc
    raise AssertionError("nothing was raised")


def fail_with(exc, cause=None):
    raise exc from cause


class TestException:
    def test_name_message_and_traceback(self):
        name, message, trace = described(caught(fail_with, ValueError("no such order")))
        assert (name, message) == ("ValueError", "no such order")
        assert trace.startswith("Traceback (most recent call last):\n")
        assert "in fail_with\n    raise exc from cause\n" in trace
        assert trace.endswith("ValueError: no such order\n")

    def test_names_are_qualified_but_for_builtins(self):
        class Local(Exception):
            pass

        assert described(CardDeclined(7, "no"))[:2] == (f"{__name__}.CardDeclined", "(7, 'no')")
        assert described(Local())[0].endswith("<locals>.Local")
        assert described(Local())[0].startswith(f"{__name__}.TestException.")
        assert described(asyncio.CancelledError())[0] == "asyncio.exceptions.CancelledError"
        assert described(DecodeError("x"))[0] == "deadq.codec.DecodeError"
        assert described(KeyError("x"))[:2] == ("KeyError", "'x'")
        assert described(StopIteration())[:2] == ("StopIteration", "")

    @pytest.mark.parametrize("raised", [ValueError(), Quit(), GeneratorExit(), RecursionError()])
    def test_methods_that_raise(self, raised):
        name, message, trace = described(caught(fail_with, Unreadable(raised), Unreadable(raised)))
        assert name.endswith("Unreadable")
        assert message == f"<message not readable: __str__ raised {_name(raised)}>"
        assert "in fail_with" in trace

    @pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit()])
    def test_a_stop_from_outside_passes(self, raised):
        with pytest.raises(type(raised)):
            describe_exception(Unreadable(raised))

    def test_a_text_that_is_none(self):
        class Wordless(Exception):
            def __str__(self):
                return None  # noqa: PLE0307  # the fault under test

        assert "__str__ raised TypeError" in described(Wordless())[1]

    def test_a_text_with_methods_of_its_own(self):
        class Sly(str):
            __slots__ = ()

            def __getitem__(self, key):
                raise OSError

            def encode(self, *args):
                raise OSError

        class SlyError(Exception):
            def __str__(self):
                return Sly("hello")

        assert described(SlyError())[1] == "hello"

    def test_attributes_that_raise_or_lie(self):
        class Meta(type):
            def __getattribute__(cls, name):
                return 1 / 0 if name == "__qualname__" else 7

        class Liar(Exception, metaclass=Meta):
            __cause__ = property(lambda self: 1 / 0)
            __context__ = property(lambda self: "no exception")
            __traceback__ = property(lambda self: 1 / 0)
            __notes__ = property(lambda self: [None, 1])

        class LyingGroup(ExceptionGroup):
            exceptions = property(lambda self: [1, 2, ValueError("x")])

        assert described(Liar("hi"))[:2] == ("Liar", "hi")
        assert described(LyingGroup("g", [ValueError()]))[1] == "g (1 sub-exception)"

    def test_lone_surrogates_are_written_out(self):
        assert described(ValueError("a\ud800b"))[1] == r"a\ud800b"
        assert described(caught(fail_with, OSError(2, "no", "\udcff")))[1].count(r"\udcff")

    @pytest.mark.parametrize("text", ["x" * 100_000_000, "\U0001f600" * 1_000_000])
    def test_a_huge_message(self, text):
        exc = caught(fail_with, ValueError(text))
        tracemalloc.start()
        try:
            _, message, trace = described(exc)
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()
        assert message.startswith(text[:100])
        assert message.endswith(f"… [{len(text)} characters]")
        assert "in fail_with" in trace
        assert len(trace.encode()) < 8192

    def test_500_causes(self):
        exc = ValueError(0)
        for number in range(1, 500):
            exc = caught(fail_with, ValueError(number), exc)
        _, _, trace = described(exc)
        assert trace.endswith("ValueError: 499\n")
        assert "earlier exceptions left out]" in trace
        assert trace.count("direct cause") > 5

    def test_causes_in_a_ring(self):
        one, other = ValueError("one"), ValueError("other")
        one.__cause__, other.__cause__ = other, one
        assert described(one)[2].endswith("ValueError: one\n")
        assert described(one)[2].count("ValueError: one") == 1

    def test_the_cause_and_the_context_are_told(self):
        def handle():
            try:
                fail_with(KeyError("first"))
            except KeyError:
                fail_with_context()

        def fail_with_context():
            raise ValueError("second")

        _, _, trace = described(caught(handle))
        first, between, second = (
            trace.index(text) for text in ("KeyError: 'first'", "During handling", "second")
        )
        assert first < between < second
        assert "KeyError" not in described(caught(fail_with, ValueError("x"), None))[2]

    def test_a_cause_is_not_crowded_out(self):
        exc = caught(fail_with, ValueError("y" * 10_000), KeyError("the root"))
        exc.add_note("n" * 100_000)
        trace = described(exc, limit=2048)[2]
        assert "KeyError: 'the root'" in trace
        assert "ValueError: yyy" in trace

    def test_groups_show_their_members(self):
        inner = ExceptionGroup("inner", [caught(fail_with, KeyError("deep"))])
        group = ExceptionGroup("outer", [caught(fail_with, ValueError("flat")), inner])
        name, message, trace = described(caught(fail_with, group))
        assert (name, message) == ("ExceptionGroup", "outer (2 sub-exceptions)")
        assert "  + 1 of 2\n" in trace
        assert "  | ValueError: flat\n" in trace
        assert "  |   | KeyError: 'deep'\n" in trace

    def test_groups_are_bounded(self):
        wide = ExceptionGroup("wide", [ValueError(i) for i in range(10_000)])
        assert "9992 more" in described(wide)[2]
        deep = nested(900, lambda e: ExceptionGroup("deep", [e]), ValueError("end"))
        assert described(deep)[1] == "deep (1 sub-exception)"
        bushy = nested(5, lambda e: ExceptionGroup("bushy", [e] * 9), ValueError("end"))
        assert described(bushy)[0] == "ExceptionGroup"

    def test_recursion_is_told_short(self):
        def down(n):
            return down(n + 1)

        name, _, trace = described(caught(down, 0))
        assert name == "RecursionError"
        assert "frames left out]" in trace
        assert trace.count("in TestException.test_recursion_is_told_short.<locals>.down") == 19

    def test_notes_are_told(self):
        exc = ValueError("x")
        exc.add_note("order 17")
        assert described(exc)[2] == "ValueError: x\norder 17\n"

    @pytest.mark.parametrize("limit", [256, 300, 512, 1000, 8192, 100_000])
    def test_any_limit_is_kept(self, limit):
        texts = ["\U0001f600" * 10_000, "x" * 10_000, "\ud800" * 10_000, "short"]
        for text in texts:
            exc = caught(fail_with, ExceptionGroup(text, [ValueError(text)]), CardDeclined(1, text))
            assert described(exc, limit=limit)[1]
        with pytest.raises(ValueError, match="at least 256 bytes, not 255"):
            describe_exception(ValueError(), limit=255)

    @pytest.mark.parametrize("data", [b"", b"\x90", b"\x93\xa1a\xa1b\x01", encode(("a", "b", "c"))])
    def test_reading_refuses_other_bytes(self, data):
        with pytest.raises(DecodeError):
            read_exception(data)

    def test_a_newer_release_may_tell_more(self):
        assert read_exception(encode(["E", "m", "t", {"more": 1}])) == ("E", "m", "t")


def _name(exc):
    kind = type(exc)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
