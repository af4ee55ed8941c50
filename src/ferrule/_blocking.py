"""
From a thread into the loop, waiting for its answer.

In a room of its own, which is loaded by the first thread that waits: few do, and this part of anyio
brings most of the rest of it along, which a program that only defines tools never needs.
"""

import anyio.from_thread

run = anyio.from_thread.run


def is_given() -> bool:
    """
    Say whether this is a thread that was given to a call by its loop.

    Raises:
        BaseException: what the loop cancels the call with, if it was.
    """
    try:
        anyio.from_thread.check_cancelled()
    except RuntimeError:
        return False
    return True
