"""Imported first by the fork server: what every worker inherits.

SIGTERM and SIGINT go to the whole process group when a person or a service manager stops the server; the front
process drains then and still needs its workers, so both are blocked here and in all that is forked (not ignored: Paddle
installs handlers of its own that end the process). The kernel ends the fork server with the front process, and the
workers with the fork server.
"""

import os
import signal

from paddlewheel import engines
from paddlewheel.workers import child

ENGINES_VARIABLE = "_PADDLEWHEEL_FORK_SERVER_ENGINES"
"""How the front process tells the fork server which engines to import: a fork server takes no arguments."""


def _prepare() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    child.end_with_parent()
    engines.preload(os.environ[ENGINES_VARIABLE].split())


if ENGINES_VARIABLE in os.environ:
    _prepare()
