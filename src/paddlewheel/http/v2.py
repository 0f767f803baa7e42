"""The Open Inference Protocol over HTTP, but for the infer route: health, metadata, statistics, the repository."""

from __future__ import annotations

from typing import Any, Final

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from paddlewheel import __version__
from paddlewheel.batching import Duration, VersionStatistics
from paddlewheel.errors import InvalidArgumentError
from paddlewheel.inference import TensorSpec
from paddlewheel.repository import ModelDescription, ModelRepository
from paddlewheel.service import Service

EXTENSIONS: Final = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "statistics",
)


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
        return _json(
            {
                "name": "paddlewheel",
                "version": __version__,
                "extensions": EXTENSIONS,
                "parameters": {"max_message_bytes": limit},
            }
        )

    @router.get("/health/live", summary="Whether the process lives")
    async def live() -> Response:
        return Response(status_code=200)

    @router.get("/health/ready", summary="Whether every model that should be served can be called")
    async def ready() -> Response:
        return Response(status_code=200 if service.ready else 503)


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
        return Response(status_code=200 if service.model_ready(model, version) else 503)

    @router.get("/models/{model}", summary="What a model takes and returns")
    @router.get("/models/{model}/versions/{version}", summary="What a version takes and returns")
    async def metadata(model: str, version: str | None = None) -> Response:
        description = models.describe(model, version)
        return _json(
            {
                "name": description.name,
                "versions": description.versions,
                "platform": description.platform,
                "inputs": [_spec_body(spec) for spec in description.signature.inputs],
                "outputs": [_spec_body(spec) for spec in description.signature.outputs],
            }
        )

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
        entries = [entry for entry in models.index() if entry.state == "READY" or not body.get("ready")]
        return _json(
            [
                {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
                for entry in entries
            ]
        )

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


def config_body(description: ModelDescription) -> dict[str, Any]:
    """Return the settings of a version as Triton's ModelConfig, as far as they have names there."""
    batching, batched = description.batching, description.max_batch_size > 1
    body: dict[str, Any] = {
        "name": description.name,
        "platform": description.platform,
        "backend": description.spec.engine,
        "max_batch_size": description.max_batch_size if batched else 0,
        "input": [_config_spec(spec, batched=batched) for spec in description.signature.inputs],
        "output": [_config_spec(spec, batched=batched) for spec in description.signature.outputs],
        "version_policy": {"specific": {"versions": [int(each) for each in description.versions if each.isdecimal()]}},
        "parameters": {
            "device": {"string_value": description.spec.device},
            "precision": {"string_value": description.spec.precision},
        },
    }
    if batched:
        preferred = [batching.preferred_batch_size] if batching.preferred_batch_size else []
        body["dynamic_batching"] = {
            "preferred_batch_size": preferred,
            "max_queue_delay_microseconds": batching.max_queue_delay_microseconds,
            "priority_levels": batching.priority_levels,
            "default_queue_policy": {
                "timeout_action": "REJECT",
                "default_timeout_microseconds": batching.default_timeout_microseconds,
                "max_queue_size": batching.max_queue_size,
            },
        }
    return body


def statistics_body(statistics: VersionStatistics) -> dict[str, Any]:
    """Return what the requests to a version cost, as the statistics extension has it."""
    parts = {
        "success": statistics.success,
        "fail": statistics.fail,
        "queue": statistics.queue,
        "compute_input": statistics.compute_input,
        "compute_infer": statistics.compute_infer,
        "compute_output": statistics.compute_output,
        "cache_hit": Duration(),
        "cache_miss": Duration(),
    }
    return {
        "name": statistics.name,
        "version": statistics.version,
        "last_inference": statistics.last_inference_ms,
        "inference_count": statistics.inference_count,
        "execution_count": statistics.execution_count,
        "inference_stats": {part: _duration(each) for part, each in parts.items()},
        "batch_stats": [
            {"batch_size": rows, "compute_infer": _duration(each)} for rows, each in sorted(statistics.batches.items())
        ],
    }


def _duration(duration: Duration) -> dict[str, int]:
    return {"count": duration.count, "ns": duration.ns}


def _spec_body(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _config_spec(spec: TensorSpec, *, batched: bool) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": list(spec.shape[1:] if batched else spec.shape)}


def _object(body: bytes) -> dict[str, Any]:
    """Return the object in a body that may be left out."""
    try:
        given = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError(f"The body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise InvalidArgumentError("The body is no JSON object.")
    return given


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")
