"""Words between a supervisor and a child, as long as they may be."""

import contextlib
import select
import threading

from deadq.runtime.ties.channel import Channel


def test_a_word_that_is_longer_than_the_socket_s_buffer_arrives_before_its_answer_is_due():
    """As a child's first one, with the authorities that its user's client trusts in it."""
    ours, theirs = Channel.pair()
    with contextlib.closing(ours), contextlib.closing(theirs):
        word = "hello " + "x" * 2_000_000
        theirs.send(word)
        child = threading.Thread(target=theirs.await_line, args=("go",), daemon=True)
        child.start()
        heard = []
        while not heard and select.select([ours], [], [], 10.0)[0]:
            heard = ours.receive()
        assert heard == [word]
        ours.send("go")
        child.join(10.0)
        assert not child.is_alive()
        assert theirs.receive() == []
