"""Streams that never fail wait for a slow reader, and lose nothing that could be written."""

from __future__ import annotations

import os
import threading
import time

from jobs.cli.streams import _stream


def test_a_slow_reader_of_a_pipe_that_does_not_wait_is_given_everything() -> None:
    """Some supervisors hand over such a pipe: a document of 300 KB was cut at 64 KiB, with exit code 0."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    text, got = "x" * 300_000 + "\n", bytearray()

    def read_slowly() -> None:
        time.sleep(0.1)
        while piece := os.read(reader, 4096):
            got.extend(piece)

    thread = threading.Thread(target=read_slowly)
    thread.start()
    stream = _stream(writer, None)
    stream.write(text)
    stream.flush()
    os.close(writer)
    thread.join()
    os.close(reader)
    assert len(got) == len(text)
