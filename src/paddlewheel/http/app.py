"""Puts the HTTP edge together: routes, errors, and the layer around them."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi_swagger import patch_fastapi
from starlette.types import ASGIApp

from paddlewheel import __version__
from paddlewheel.http import health, jobs, models, ocr, problems, v2
from paddlewheel.http.context import RequestContext
from paddlewheel.http.infer import InferEndpoint
from paddlewheel.jobs import JobRunner
from paddlewheel.service import Service

_DESCRIPTION = "Inference for Paddle and ONNX models, at once or as jobs, with OCR built in."


def create_app(service: Service, runner: JobRunner) -> ASGIApp:
    """Return the application in front of `service` and the jobs of `runner`."""
    app = FastAPI(
        title="paddlewheel",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    # FastAPI's own page loads its scripts from elsewhere and is blank on a machine without the internet.
    patch_fastapi(app)
    problems.install(app)
    if ocr.MODEL in service.settings.models:
        app.include_router(ocr.routes(service, runner))
    app.include_router(v2.routes(service))
    app.include_router(models.routes(service))
    app.include_router(jobs.routes(service, runner))
    app.include_router(health.routes(service, runner))
    return RequestContext(
        InferEndpoint(service, runner, app),
        limits=service.settings.limits,
        metrics=service.metrics,
        draining=lambda: service.draining,
    )
