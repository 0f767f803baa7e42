"""The Open Inference Protocol over HTTP, but for the infer route: health, metadata, statistics, the repository."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from paddlewheel.errors import InvalidArgumentError
from paddlewheel.open_inference import config_body, index_body, model_body, server_body, statistics_body
from paddlewheel.repository import ModelRepository
from paddlewheel.service import Service


def routes(service: Service) -> APIRouter:
    """Return the routes under ``/v2``."""
    router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])
    _add_server(router, service)
    _add_models(router, service)
    _add_repository(router, service.models)
    return router


def _add_server(router: APIRouter, service: Service) -> None:
    @router.get("", summary="Name, version and extensions of the server")
    async def server() -> Response:
        limit = service.settings.limits.max_message_bytes
        return _json(server_body() | {"parameters": {"max_message_bytes": limit}})

    @router.get("/health/live", summary="Whether the process lives")
    async def live() -> Response:
        return _json({"live": True})

    @router.get("/health/ready", summary="Whether every model that should be served can be called")
    async def ready() -> Response:
        return _json({"ready": service.ready}, 200 if service.ready else 503)


def _add_models(router: APIRouter, service: Service) -> None:
    models = service.models

    @router.get("/models", summary="The models that should be served")
    async def names() -> Response:
        return _json({"models": models.names()})

    @router.get("/models/stats", summary="What the requests to every model cost")
    async def all_statistics() -> Response:
        return _json({"model_stats": [statistics_body(each) for each in models.statistics()]})

    @router.get("/models/{model}/ready", summary="Whether a model can be called")
    @router.get("/models/{model}/versions/{version}/ready", summary="Whether a version can be called")
    async def model_ready(model: str, version: str | None = None) -> Response:
        is_ready = service.model_ready(model, version)
        return _json({"name": model, "ready": is_ready}, 200 if is_ready else 503)

    @router.get("/models/{model}", summary="What a model takes and returns")
    @router.get("/models/{model}/versions/{version}", summary="What a version takes and returns")
    async def metadata(model: str, version: str | None = None) -> Response:
        return _json(model_body(models.describe(model, version)))

    @router.get("/models/{model}/config", summary="The settings of a model, in Triton's terms")
    @router.get("/models/{model}/versions/{version}/config", summary="The settings of a version, in Triton's terms")
    async def config(model: str, version: str | None = None) -> Response:
        return _json(config_body(models.describe(model, version)))

    @router.get("/models/{model}/stats", summary="What the requests to a model cost")
    @router.get("/models/{model}/versions/{version}/stats", summary="What the requests to a version cost")
    async def statistics(model: str, version: str | None = None) -> Response:
        return _json({"model_stats": [statistics_body(each) for each in models.statistics(model, version)]})


def _add_repository(router: APIRouter, models: ModelRepository) -> None:
    @router.post("/repository/index", summary="Every model and version, and how it stands")
    async def index(request: Request) -> Response:
        body = _object(await request.body())
        return _json(index_body(models.index(), only_ready=bool(body.get("ready"))))

    @router.post("/repository/models/{model}/load", summary="Load a model, or what is new of it")
    async def load(model: str, request: Request) -> Response:
        if (_object(await request.body()).get("parameters") or {}).keys():
            raise InvalidArgumentError(
                "A load takes no parameters here; edit the model's model.toml and load it again."
            )
        await models.load(model)
        return Response(status_code=200)

    @router.post("/repository/models/{model}/unload", summary="Unload a model")
    async def unload(model: str) -> Response:
        await models.unload(model)
        return Response(status_code=200)


def _object(body: bytes) -> dict[str, Any]:
    """Return the object in a body that may be left out."""
    try:
        given = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError(f"The body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise InvalidArgumentError("The body is no JSON object.")
    return given


def _json(body: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
