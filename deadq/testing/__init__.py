"""Testing code that uses deadq: no server, no worker process, no waiting.

::

    from deadq import testing
    from shop.jobs import charge, queue

    def test_an_order_is_charged_once():
        with testing.clock() as clock, testing.faked(queue):
            job = charge.options(key="order-17").enqueue("17", 999)
            assert testing.run_until_idle(queue) == 1
            assert job.result() == {"charged": 999}

:func:`queue` makes a queue on a fake server in memory, :func:`faked` moves one of yours there for
the length of a block; both need ``pip install 'deadq[testing]'``. :func:`clock` gives a clock that
stands still until the test moves it. :func:`run_until_idle` runs what is ready at that instant.
Waiting for a result does that by itself, so that ``task.call(...)``, and a web app that uses it,
work in a test as they are. :func:`slow_proxy` puts a bad network in front of a real server.
:func:`run_in_virtual_time` runs asynchronous code that waits, such as retries and hedges, without
waiting.

:func:`assert_chain` fails a test where the timeouts and tries of a chain of calls do not fit.

pytest finds the fixtures ``deadq_clock`` and ``deadq_queue`` by itself.
"""

from .chains import assert_chain
from .driver import arun_until_idle, run_until_idle
from .fake import faked, queue
from .moving_clock import Clock, clock
from .proxy import SlowProxy, slow_proxy
from .virtual_time import run_in_virtual_time

__all__ = [
    "Clock",
    "SlowProxy",
    "arun_until_idle",
    "assert_chain",
    "clock",
    "faked",
    "queue",
    "run_in_virtual_time",
    "run_until_idle",
    "slow_proxy",
]
