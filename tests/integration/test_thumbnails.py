"""workers/thumbnails as its callers meet it: the real Flask app and worker, over real HTTP."""

import contextlib
import io
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from PIL import Image

from deadq import BreakerOpen, Queue
from tests.commands import COMMAND, ROOT, environment
from tests.forked import Program
from tests.servers import wait_until


def picture(size=(640, 480), colour=(200, 30, 30), kind="PNG"):
    content = io.BytesIO()
    Image.new("RGB", size, colour).save(content, kind)
    return content.getvalue()


class Thumbnails:
    """The Flask app, its queue as an operator sees it, and workers on demand."""

    def __init__(self, folder, url):
        self.folder = folder / "pictures"
        self._log = folder / "log"
        self._settings = {"DEADQ_URL": url, "THUMBNAILS_FOLDER": str(self.folder)}
        self.queue = Queue("thumbnails", capacity=32, url=url)
        self._open = contextlib.ExitStack()
        self._run("flask", "--app", "workers.thumbnails.web", "run", "--port=0")
        found = wait_until(
            lambda: re.search(r"Running on (http://\S+)", self._log.read_text()), "the web app"
        )
        self.client = self._open.enter_context(httpx.Client(base_url=found[1], timeout=20.0))
        self._open.callback(self.queue.close)

    def _run(self, *args):
        process = Program(
            *args,
            cwd=ROOT,
            env=environment(**self._settings),
            stdin=subprocess.DEVNULL,
            stdout=self._log.open("ab"),
            stderr=subprocess.STDOUT,
        )
        self._open.callback(process.wait, 10)
        self._open.callback(process.terminate)

    def worker(self):
        self._run(COMMAND[-1], "work", "workers.thumbnails.jobs:queue", "--concurrency", "2")
        wait_until(lambda: self.queue.stats().slots == 2, "the worker")

    def post(self, image, width="200", timeout_ms="10000"):
        return self.client.post(
            "/thumbnails",
            files={} if image is None else {"image": image},
            data={"width": width},
            headers={"x-timeout-ms": timeout_ms},
        )

    def counted(self, name):
        return self.queue.stats().counters.get(name, 0)

    def close(self):
        self._open.close()


@pytest.fixture
def shop(tmp_path, valkey_server):
    with valkey_server.client() as client:
        client.flushall()
    made = Thumbnails(tmp_path, valkey_server.url)
    yield made
    made.close()


@pytest.fixture
def staffed(shop):
    shop.worker()
    return shop


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF"])
def test_a_thumbnail_is_made(staffed, kind):
    answer = staffed.post(picture(kind=kind), "160")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/jpeg")
    with Image.open(io.BytesIO(answer.content)) as made:
        assert (made.format, made.size) == ("JPEG", (160, 120))
        red, green, blue = made.getpixel((80, 60))
    assert (red > 180, green < 60, blue < 60) == (True, True, True)


def test_the_same_picture_at_the_same_width_is_made_once(staffed):
    image = picture()
    with ThreadPoolExecutor(4) as callers:
        answers = list(callers.map(staffed.post, [image] * 8))
    assert [answer.status_code for answer in answers] == [200] * 8
    assert len({answer.content for answer in answers}) == 1
    assert staffed.counted("finished:done") == staffed.counted("started") == 1
    assert staffed.post(image, "100").content != answers[0].content
    assert staffed.counted("finished:done") == 2
    # the picture and its two thumbnails: no draft is left
    assert len(list(staffed.folder.iterdir())) == 3


@pytest.mark.parametrize(
    ("image", "width", "timeout_ms"),
    [
        (None, "200", "1000"),
        (picture(), "0", "1000"),
        (picture(), "4001", "1000"),
        (picture(), "200", "soon"),
        (picture(), "200", "nan"),
        (picture(), "200", "-1"),
    ],
)
def test_what_cannot_be_understood_is_400(shop, image, width, timeout_ms):
    assert shop.post(image, width, timeout_ms).status_code == 400


@pytest.mark.parametrize("image", [b"no picture", picture()[:200]])
def test_what_is_no_picture_is_415(staffed, image):
    assert staffed.post(image).status_code == 415


def test_a_caller_whose_time_is_over_gets_504(shop):
    assert shop.post(picture(), timeout_ms="300").status_code == 504


def test_a_full_queue_is_429_and_says_when_to_come_back(shop):
    with ThreadPoolExecutor(40) as callers:
        waiting = [
            callers.submit(shop.post, picture(), str(width), "1500") for width in range(100, 132)
        ]
        wait_until(lambda: shop.queue.stats().live == 32, "the queue to be full")
        answer = shop.post(picture())
        assert {w.result().status_code for w in waiting} == {504}
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1


def test_a_paused_queue_is_503(shop):
    shop.queue.pause()
    assert shop.post(picture()).status_code == 503


def test_what_a_breaker_refuses_is_503_and_says_when_to_come_back():
    from workers.thumbnails.web import refused

    answer = refused(BreakerOpen("the breaker store is open", retry_after=1.2))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")


def test_an_interrupted_thumbnail_leaves_no_draft(staffed):
    """So large that it cannot be made in time."""
    large = picture((9_000, 9_000))
    assert staffed.post(large, "3000", "400").status_code == 504
    wait_until(lambda: not staffed.queue.stats().unfinished, "it to be given up")
    assert staffed.post(picture()).status_code == 200
    assert sorted(file.suffix for file in staffed.folder.iterdir()) == ["", "", ".jpg"]
