"""A line on standard error for a process that ends without one, because it was killed or a library ended it.

python -I -S last_words.py TEXT: wait until standard input ends, and print TEXT unless the process that started this
one has ended in order. That program has only the standard library, to stay small while it waits.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_DONE = b"done"


@contextmanager
def last_words(text: str) -> Iterator[None]:
    """Have `text` printed if this process ends before the block does."""
    # In a session of its own: Ctrl-C in a terminal reaches all processes of a session.
    command = [sys.executable, "-I", "-S", __file__, text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True) as printer:
        try:
            yield
        finally:
            assert printer.stdin is not None
            with suppress(OSError):  # it was killed
                printer.stdin.write(_DONE)
                printer.stdin.flush()


if __name__ == "__main__":
    if sys.stdin.buffer.read() != _DONE:
        sys.stderr.write(f"{sys.argv[1]}\n")
