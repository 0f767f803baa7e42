"""Imported first by the fork server: what every worker inherits.

SIGTERM and SIGINT go to the whole process group when a person or a service manager stops the server; the front
process drains then and still needs its workers, so the fork server ignores both. The kernel ends it with the front
process, and its workers with it.
"""

import os
import signal

from paddlewheel import engines
from paddlewheel.workers import child

ENGINES_VARIABLE = "_PADDLEWHEEL_FORK_SERVER_ENGINES"
"""How the front process tells the fork server which engines to import: a fork server takes no arguments."""


def _prepare() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    child.end_with_parent()
    engines.preload(os.environ[ENGINES_VARIABLE].split())


if ENGINES_VARIABLE in os.environ:
    _prepare()
