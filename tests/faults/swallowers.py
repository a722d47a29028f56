"""Handlers that do not want to leave: each way in which Python lets code hold on to control.

Each way spends its time in steps of 10 ms and notes each as a ``beat``; left alone it ends after
five seconds. Those in ``LEAVE`` have a catch-all that ends once, the others never let go.
"""

import asyncio
import contextlib
import ctypes
import signal
import sys
import threading
import time

from deadq import Retry

STEP_S = 0.01
_ALL_S = 5.0


def _steps():
    until = time.monotonic() + _ALL_S
    while time.monotonic() < until:
        yield


# Plain ones.


def bare_except(beat):
    for _ in _steps():
        try:
            beat()
            time.sleep(STEP_S)
        except:  # noqa: E722
            pass


def base_exception(beat):
    for _ in _steps():
        try:
            beat()
            time.sleep(STEP_S)
        except BaseException:
            continue


def suppressed(beat):
    for _ in _steps():
        with contextlib.suppress(BaseException):
            beat()
            time.sleep(STEP_S)


def continue_in_finally(beat):
    until = time.monotonic() + _ALL_S
    while time.monotonic() < until:
        try:
            beat()
            time.sleep(STEP_S)
        finally:
            continue  # noqa: B012


def return_in_finally(beat):
    def step():
        try:
            beat()
            time.sleep(STEP_S)
        finally:
            return  # noqa: B012

    for _ in _steps():
        step()


def nested(beat):
    def inner():
        try:
            beat()
            time.sleep(STEP_S)
        except:  # noqa: E722
            raise RuntimeError("something else") from None

    def middle():
        try:
            inner()
        except:  # noqa: E722
            return

    for _ in _steps():
        with contextlib.suppress(BaseException):
            middle()


def generator(beat):
    def endless():
        while True:
            try:
                beat()
                time.sleep(STEP_S)
                yield
            except GeneratorExit:
                return
            except:  # noqa: E722
                yield

    source = endless()
    for _ in _steps():
        try:
            next(source)
        except:  # noqa: E722
            source = endless()


def in_del(beat):
    """An exception in __del__ is printed, and gone."""

    class Dying:
        def __del__(self):
            beat()
            time.sleep(STEP_S)

    sys.unraisablehook = lambda _: None
    for _ in _steps():
        with contextlib.suppress(BaseException):
            Dying()


def in_a_c_callback(beat):
    """An exception in a callback from C is printed, and gone."""

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def compare(_a, _b):
        beat()
        time.sleep(STEP_S)
        return 0

    sys.unraisablehook = lambda _: None
    numbers = (ctypes.c_int * 4)(4, 3, 2, 1)
    for _ in _steps():
        with contextlib.suppress(BaseException):
            ctypes.CDLL(None).qsort(numbers, 4, 4, compare)


def behind_a_thread(beat):
    def work():
        for _ in _steps():
            time.sleep(STEP_S)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        try:
            beat()
            thread.join(STEP_S)
        except:  # noqa: E722
            pass


def on_a_loop_of_its_own(beat):
    async def main():
        for _ in _steps():
            try:
                beat()
                await asyncio.sleep(STEP_S)
            except:  # noqa: E722
                pass

    for _ in _steps():
        with contextlib.suppress(BaseException):
            asyncio.run(main())


def signals_blocked(beat):
    """No signal gets through any more, but SIGKILL."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    for _ in _steps():
        beat()
        time.sleep(STEP_S)


def signals_taken_away(beat):
    """Its own handlers in place of deadq's."""
    for number in (signal.SIGALRM, signal.SIGIO, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for _ in _steps():
        beat()
        time.sleep(STEP_S)


def timer_taken_away(beat):
    for _ in _steps():
        signal.setitimer(signal.ITIMER_REAL, 0)
        beat()
        time.sleep(STEP_S)


def held_in_c(beat):
    """No signal handler runs before the call is over."""
    beat()
    sum(range(400_000_000))


PLAIN = {
    way.__name__: way
    for way in (
        bare_except,
        base_exception,
        suppressed,
        continue_in_finally,
        return_in_finally,
        nested,
        generator,
        in_del,
        in_a_c_callback,
        behind_a_thread,
        on_a_loop_of_its_own,
        signals_blocked,
        signals_taken_away,
        timer_taken_away,
        held_in_c,
    )
}
DEAF = ("signals_blocked", "signals_taken_away", "timer_taken_away", "held_in_c")
"""Those to which no interrupt gets through: the supervisor alone can tell."""


# Coroutines.


async def a_bare_except(beat):
    for _ in _steps():
        try:
            beat()
            await asyncio.sleep(STEP_S)
        except:  # noqa: E722
            pass


async def a_base_exception(beat):
    for _ in _steps():
        try:
            beat()
            await asyncio.sleep(STEP_S)
        except BaseException:
            continue


async def a_suppressed(beat):
    for _ in _steps():
        with contextlib.suppress(BaseException):
            beat()
            await asyncio.sleep(STEP_S)


async def a_return_in_finally(beat):
    async def step():
        try:
            beat()
            await asyncio.sleep(STEP_S)
        finally:
            return  # noqa: B012

    for _ in _steps():
        await step()


async def a_uncancelled(beat):
    for _ in _steps():
        try:
            beat()
            await asyncio.sleep(STEP_S)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            while task.cancelling():
                task.uncancel()


async def a_shielded(beat):
    async def work():
        for _ in _steps():
            beat()
            await asyncio.sleep(STEP_S)

    inner = asyncio.ensure_future(work())
    while not inner.done():
        with contextlib.suppress(BaseException):
            await asyncio.shield(inner)


async def a_generator(beat):
    async def endless():
        while True:
            try:
                beat()
                await asyncio.sleep(STEP_S)
                yield
            except asyncio.CancelledError:
                yield

    source = endless()
    for _ in _steps():
        try:
            await anext(source)
        except:  # noqa: E722
            source = endless()


async def a_other_error(beat):
    """Answers the cancellation with an error of its own, and catches that."""
    for _ in _steps():
        try:
            try:
                beat()
                await asyncio.sleep(STEP_S)
            except BaseException:
                raise LookupError("mine") from None
        except LookupError:
            pass


COROUTINES = {
    way.__name__.removeprefix("a_"): way
    for way in (
        a_bare_except,
        a_base_exception,
        a_suppressed,
        a_return_in_finally,
        a_uncancelled,
        a_shielded,
        a_generator,
        a_other_error,
    )
}


async def a_blocking(beat):
    """Keeps the loop to itself, with a catch-all around each step."""
    bare_except(beat)


async def a_held_in_c(beat):
    held_in_c(beat)


HOLDING = {"blocking": a_blocking, "held_in_c": a_held_in_c}
"""Those after which nobody else on the loop gets a turn."""


# What a handler makes of a single interrupt, by the time it leaves.


def _value():
    return "late"


def _raise(make):
    def leave():
        raise make()

    return leave


LEAVINGS = {
    "a value": _value,
    "an error": _raise(lambda: ValueError("mine")),
    "a retry": _raise(lambda: Retry(after=0)),
    "an exit": _raise(lambda: SystemExit(0)),
    "a keyboard interrupt": _raise(KeyboardInterrupt),
    "a cancellation": _raise(asyncio.CancelledError),
    "a timeout": _raise(TimeoutError),
    "a generator exit": _raise(GeneratorExit),
    "a stop iteration": _raise(lambda: StopIteration("late")),
}
