"""The thumbnail service: a Flask app.

    flask --app workers.thumbnails.web run

``POST /thumbnails`` with the fields ``image`` (a file) and ``width`` (pixels), and X-Timeout-Ms for
how long the caller will wait, answers with the thumbnail::

    200  the JPEG file                400  no image, or an odd width
    429  the queue is full            415  not a picture that can be read
    504  the time is over             503  cannot be made in time, or the queue is away

The same picture at the same width is one job, whoever asks for it.
"""

from __future__ import annotations

import math

from flask import Flask, Response, request, send_file

from deadq import (
    BreakerOpen,
    DeadlineExceeded,
    DeadlineExpired,
    DeadqError,
    JobFailed,
    QueueFull,
    Rejected,
)

from .jobs import FOLDER, UnreadableError, keep, shrink

app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = 20_000_000


@app.post("/thumbnails")
def thumbnail() -> Response:
    """Accept or refuse at once; what was accepted is answered when it has been made."""
    image = request.files.get("image")
    width = request.form.get("width", 200, type=int)
    if image is None or not 1 <= width <= 4_000:
        return problem(400, 'send a file "image", and a "width" from 1 to 4000')
    try:
        within = float(request.headers.get("x-timeout-ms", "10000")) / 1_000
        picture = keep(image.read())
        call = shrink.options(key=f"{picture}-{width}", within=within)
    except ValueError as odd:
        return problem(400, str(odd))
    try:
        made = call.enqueue(picture, width).result()
    except DeadqError as error:
        return refused(error)
    return send_file((FOLDER / made).resolve(), mimetype="image/jpeg")


def refused(error: DeadqError) -> Response:
    """What the caller is told of a thumbnail that was not made."""
    match error:
        case DeadlineExpired() | DeadlineExceeded():
            return problem(504, "the time is over")
        case QueueFull():
            return problem(429, error.reason, error.retry_after)
        case Rejected():
            return problem(503, error.reason, error.retry_after)
        case BreakerOpen():
            return problem(503, str(error), error.retry_after)
        case JobFailed() if error.type_name.endswith(UnreadableError.__name__):
            return problem(415, "this is no picture that can be read")
    return problem(500, type(error).__name__)


def problem(status: int, text: str, retry_after: float | None = None) -> Response:
    """An answer in plain words."""
    response = Response(f"{text}\n", status, mimetype="text/plain")
    if retry_after is not None:
        response.headers["retry-after"] = str(math.ceil(retry_after))  # whole seconds
    return response
