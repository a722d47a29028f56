"""deadq: a work queue that never forgets until when somebody waits.

The way of the data::

    edge (headers) -> Deadline -> Task.enqueue -> admit.lua -> ready -> claim.lua -> runner
                                      |                          |          |
                                      |                          |          v
                                      |                          |     finish.lua -> waiter
                                      |                          |
                       refused: full, unmeetable, expired    dropped unstarted: expired, unmeetable

A web tier submits jobs, each with an absolute deadline and an idempotency key; one script on the
server decides in one round trip whether the job is accepted; workers take the job with the
earliest latest start, and only while it can still be finished in time.
"""

from .budgets import FleetBudget
from .deadline import Deadline
from .errors import (
    BreakerOpen,
    Cancelled,
    DeadlineExceeded,
    DeadlineExpired,
    DeadqError,
    Interrupt,
    JobFailed,
    JobGone,
    KeyReused,
    LeaseLost,
    Paused,
    PayloadTooLarge,
    QueueFull,
    Rejected,
    Retry,
    RetryDenied,
    StoreUnavailable,
    Unmeetable,
)
from .handle import JobHandle
from .job import Criticality, DeadJob, State
from .prepared import Prepared
from .queue import Queue
from .reports import JobReport, ListedJob, UnitReport
from .runtime.jobs.current import CurrentJob, current_job, unit
from .runtime.loop.units import UnitError, UnitInDoubt
from .runtime.worker import Worker
from .task import BoundCall, Task
from .tied import atie, tie
from .tied_handle import TiedHandle

__all__ = [
    "BoundCall",
    "BreakerOpen",
    "Cancelled",
    "Criticality",
    "CurrentJob",
    "DeadJob",
    "Deadline",
    "DeadlineExceeded",
    "DeadlineExpired",
    "DeadqError",
    "FleetBudget",
    "Interrupt",
    "JobFailed",
    "JobGone",
    "JobHandle",
    "JobReport",
    "KeyReused",
    "LeaseLost",
    "ListedJob",
    "Paused",
    "PayloadTooLarge",
    "Prepared",
    "Queue",
    "QueueFull",
    "Rejected",
    "Retry",
    "RetryDenied",
    "State",
    "StoreUnavailable",
    "Task",
    "TiedHandle",
    "UnitError",
    "UnitInDoubt",
    "UnitReport",
    "Unmeetable",
    "Worker",
    "atie",
    "current_job",
    "tie",
    "unit",
]

__version__ = "0.1.0"
