"""``paddlewheel``: the commands."""

from __future__ import annotations

import typer

from paddlewheel.cli.config import show_config
from paddlewheel.cli.models import models_app
from paddlewheel.cli.ocr import ocr
from paddlewheel.cli.serve import serve

app = typer.Typer(
    name="paddlewheel",
    help="Serve Paddle and ONNX models; OCR is built in.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.command()(serve)
app.command()(ocr)
app.command("config")(show_config)
app.add_typer(models_app)
