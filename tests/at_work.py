"""What ``deadq work tests.at_work:queue`` loads: the queue and the tasks that a test declares.

Loaded in the worker's children alone, as a user's module is. What to declare stands in the
environment; see :mod:`tests.shifts`.
"""

import importlib
import json
import logging
import os
from pathlib import Path

from deadq import Queue
from tests.settings import heard
from tests.shop import Book

_told = json.loads(os.environ["DEADQ_TEST_AT_WORK"])


def _called(name: str, *args: object) -> None:
    module, _, function = name.partition(":")
    getattr(importlib.import_module(module), function)(*args)


book = Book(Path(_told["book"]))
queue = Queue(**heard(_told["settings"]))
_called(_told["declare"], queue, book)
if _told["prepare"]:
    _called(_told["prepare"], book)
logging.captureWarnings(True)
