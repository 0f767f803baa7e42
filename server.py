"""`python server.py --workers 4 --port 8000` is `paddlewheel serve --workers 4 --port 8000`.

Where the package is not installed, `scripts/serve` takes over and sets up an environment first.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

if __name__ == "__main__":
    if find_spec("paddlewheel") is None:
        script = str(Path(__file__).resolve().parent / "scripts" / "serve")
        os.execv(script, [script, *sys.argv[1:]])  # noqa: S606 - no shell is wanted

    from paddlewheel.__main__ import main

    sys.argv.insert(1, "serve")
    main()
