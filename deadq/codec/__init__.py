"""What travels, as bytes: call arguments, results and failures, never changed silently.

    encode, decode       a value to msgpack and back, equal in value and type at every depth
    fingerprint          16 bytes over task and arguments: what makes two submits the same request
    describe_exception,  a failure as three bounded texts, whatever the exception's own methods do
    read_exception

The wire form is plain msgpack. What msgpack lacks travels as extension types
(``extensions.py``). Encoding is one call into C; the slow walk in Python that names the place of a
fault (``faults.py``) runs only when there is one.
"""

from .failures import describe_exception, read_exception
from .faults import MAX_DEPTH, DecodeError, EncodeError, TooLarge
from .fingerprints import fingerprint
from .values import decode, encode

__all__ = [
    "MAX_DEPTH",
    "DecodeError",
    "EncodeError",
    "TooLarge",
    "decode",
    "describe_exception",
    "encode",
    "fingerprint",
    "read_exception",
]

# Callers meet these names in failed jobs and import them from here, so files may move.
for _error in (EncodeError, TooLarge, DecodeError):
    _error.__module__ = __name__
