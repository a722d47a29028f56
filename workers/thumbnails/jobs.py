"""The thumbnail queue: what the web app and every worker import.

    deadq work workers.thumbnails.jobs:queue

The handler is a plain function that keeps a processor busy, so each worker process runs one at a
time, on as many processors as it may use; at the deadline it is interrupted.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from PIL import Image, ImageOps

from deadq import Queue, current_job

FOLDER: Final = Path(os.environ.get("THUMBNAILS_FOLDER", "thumbnails"))
"""Where pictures are kept; web app and workers share it."""

queue = Queue("thumbnails", capacity=32)


class UnreadableError(Exception):
    """This is no picture, or a damaged one."""


@queue.task(within=10.0, timeout=8.0)
def shrink(picture: str, width: int) -> str:
    """Make a thumbnail of a picture in the folder; returns the name of its file."""
    try:
        with Image.open(FOLDER / picture) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as odd:
        raise UnreadableError(str(odd)) from odd
    image.thumbnail((width, width * 4), Image.Resampling.LANCZOS)
    name = f"{picture}-{width}.jpg"
    draft = FOLDER / f"{name}.{current_job().fence}"
    try:
        image.save(draft, "JPEG", quality=85)
        # what others can see is a change of state: it appears whole, or not at all
        current_job().unit("publish", partial(os.replace, draft, FOLDER / name), needs=0.05)
    finally:
        draft.unlink(missing_ok=True)
    return name


def keep(content: bytes) -> str:
    """Store an uploaded picture under the hash of its content; returns the file's name."""
    name = hashlib.blake2b(content, digest_size=16).hexdigest()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=FOLDER, delete=False) as draft:
        draft.write(content)
    Path(draft.name).replace(FOLDER / name)  # at once, for whoever reads it
    return name
