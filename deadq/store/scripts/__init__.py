"""Every call to the server: what to send and how to read the answer, without sending anything.

Each function builds a :class:`Call`; a shell (:mod:`..sync`, :mod:`..aio`) runs it. Times are
whole milliseconds of the server's clock. Every answer begins with the server's time.
"""

from __future__ import annotations

from .call import Arg, Call
from .keeping import Begun, Renewal, RenewalReply, Renewed, begin, record, renew
from .lending import Deed, Loan, lend
from .looking import Survey, jobs, payload, show, survey
from .steering import Stats, dead, pause, stats
from .submits import BATCH, Rules, admit, batches, cancel, fetch, leave
from .work import Claimed, claim, exchange, finish, register, release, untie

__all__ = [
    "BATCH",
    "Arg",
    "Begun",
    "Call",
    "Claimed",
    "Deed",
    "Loan",
    "Renewal",
    "RenewalReply",
    "Renewed",
    "Rules",
    "Stats",
    "Survey",
    "admit",
    "batches",
    "begin",
    "cancel",
    "claim",
    "dead",
    "exchange",
    "fetch",
    "finish",
    "jobs",
    "leave",
    "lend",
    "pause",
    "payload",
    "record",
    "register",
    "release",
    "renew",
    "show",
    "stats",
    "survey",
    "untie",
]
