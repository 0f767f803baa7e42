"""The entry point of the process: owns SIGTERM and SIGINT until a command takes them over.

Importing the command line takes a moment. A signal in that moment ends the process at once, also as PID 1 of a
container, where the kernel drops a signal that has no handler: so nothing slow is imported here (`typing` is). Later
signals unwind the command, so that it can tidy up.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _status(number: int) -> int:
    """Return 0 for a server, which is meant to be stopped; any other command has not done its job."""
    return 0 if sys.argv[1:2] == ["serve"] else 128 + number


def _leave(number: int, _frame: FrameType | None) -> None:
    os._exit(_status(number))


def _unwind(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_status(number))


def main() -> None:
    """Run the command line."""
    for number in SIGNALS:
        signal.signal(number, _leave)

    from paddlewheel.cli.app import app  # noqa: PLC0415 - slow, hence after the handlers

    for number in SIGNALS:
        signal.signal(number, _unwind)
    app()


if __name__ == "__main__":
    main()
