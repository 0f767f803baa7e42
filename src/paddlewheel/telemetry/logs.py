"""Structured logs on standard error: one line an event, coloured text on a terminal, JSON elsewhere.

Every line written while a request is served carries its id (bound by the edge). Request bodies, tokens and model
outputs are never logged.
"""

from __future__ import annotations

import logging
import sys

import structlog

_FORMATTER_CHAIN: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure_logs(level: str, log_format: str) -> None:
    """Send structlog's and the standard library's records to standard error; `log_format` auto, console or json."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_FORMATTER_CHAIN,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # An access line for every probe and scrape would drown the rest; requests are counted in the metrics.
    logging.getLogger("uvicorn.access").disabled = True
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    # It writes whole addresses, which may hold a caller's secrets.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_FORMATTER_CHAIN,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
