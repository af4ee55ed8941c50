"""
Processes that are killed, as cheap as they can be: forks of one that has imported everything.

For programs of one thread that run no loop: what forks here has nothing that a fork would tear.
"""

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable

PATIENCE = 120.0
"""Seconds after which a process that should have ended hangs; nothing waits for them."""


class Process:
    """
    A fork of this process that runs a function, and what it says on a pipe.

    Args:
        function: Is given what to call with a word that it says; its end is the process's.
    """

    def __init__(self, function: Callable[[Callable[[str], object]], None]) -> None:
        reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            _run(lambda word: os.write(writing, f"{word}\n".encode()), function)
        os.close(writing)
        self._reading = reading
        self._rest = b""
        self.code: int | None = None

    def hear(self, patience: float = PATIENCE) -> str | None:
        """Return the next word; `None` where none comes for so long; empty at the end."""
        while b"\n" not in self._rest:
            if not select.select([self._reading], [], [], patience)[0]:
                return None
            data = os.read(self._reading, 65536)
            if not data:
                return ""
            self._rest += data
        word, _, self._rest = self._rest.partition(b"\n")
        return word.decode()

    def kill(self) -> bool:
        """Kill it, and wait until it is gone; say whether this ended it."""
        os.kill(self.pid, signal.SIGKILL)
        return self.end() == -signal.SIGKILL

    def run_out(self) -> int:
        """Wait for its end, whatever it says; return its exit code, negative for a signal."""
        end = time.monotonic() + PATIENCE
        while (word := self.hear(max(0.0, end - time.monotonic()))) != "":
            if word is None:
                os.kill(self.pid, signal.SIGABRT)  # faulthandler shows where it hangs.
                break
        return self.end()

    def end(self) -> int:
        """Wait for its end; return its exit code, negative for a signal."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._reading)
        return self.code


def _run(say: Callable[[str], object], function: Callable[[Callable[[str], object]], None]) -> None:
    """Run a function as all that a process does."""
    code = 1
    try:
        function(say)
        code = 0
    except BaseException:  # noqa: BLE001  # nothing may go on behind a fork
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
