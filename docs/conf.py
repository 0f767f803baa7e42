"""How Sphinx builds these pages; `scripts/docs` runs it."""

from paddlewheel import __version__

project = "paddlewheel"
author = "The paddlewheel authors"
copyright = f"2026, {author}"
release = __version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"paddlewheel {release}"
