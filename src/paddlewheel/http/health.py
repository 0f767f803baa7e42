"""Health and metrics: whether the process lives, whether it can serve, what it has done."""

from __future__ import annotations

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from paddlewheel.jobs import JobRunner
from paddlewheel.service import Service


def routes(service: Service, jobs: JobRunner) -> APIRouter:
    """Return the routes that probes and scrapers call."""
    router = APIRouter(tags=["Health"])

    @router.get("/livez", summary="Whether the process lives")
    async def live() -> Response:
        return Response("ok\n", media_type="text/plain")

    @router.get("/readyz", summary="Whether every configured model can be called")
    async def ready() -> Response:
        models = {name: _state(service, name) for name in service.models.names()}
        body = {"ready": service.ready, "draining": service.draining, "models": models}
        return Response(orjson.dumps(body), 200 if service.ready else 503, media_type="application/json")

    @router.get("/metrics", summary="Metrics in the Prometheus text format")
    async def metrics() -> Response:
        await jobs.observe()
        return Response(service.metrics.render(), headers={"Content-Type": service.metrics.content_type})

    return router


def _state(service: Service, name: str) -> dict[str, str]:
    if service.model_ready(name):
        return {"state": "ready"}
    failure = service.models.failures.get(name)
    return {"state": "loading"} if failure is None else {"state": "failed", "reason": failure.detail}
