"""The Open Inference Protocol over HTTP, with JSON tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from paddlewheel.config import Limits
from paddlewheel.errors import InvalidArgumentError
from paddlewheel.http.calls import deadline_after, deadline_of, unless_caller_leaves
from paddlewheel.inference import (
    BYTES,
    DATATYPES,
    DTYPES,
    HIGHEST_PRIORITY,
    InferenceRequest,
    InferenceResponse,
    Tensor,
)
from paddlewheel.service import Service


def routes(service: Service) -> APIRouter:
    """Return the routes under ``/v2``."""
    router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])

    @router.get("/health/live")
    async def live() -> Response:
        return Response(status_code=200)

    @router.get("/health/ready")
    async def ready() -> Response:
        return Response(status_code=200 if service.ready else 503)

    @router.get("/models/{model}/ready")
    async def model_ready(model: str) -> Response:
        return Response(status_code=200 if service.model_ready(model) else 503)

    @router.post("/models/{model}/infer")
    async def infer(model: str, request: Request) -> Response:
        with service.refusals(model):
            body = _object(await request.body())
            call = _request(body, model, request, service.settings.limits)
        response = await unless_caller_leaves(request, service.infer(call))
        return Response(orjson.dumps(_body(response, body.get("id"))), media_type="application/json")

    return router


def _object(body: bytes) -> dict[str, Any]:
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError(f"The body is not JSON: {error}") from None
    if not isinstance(given, dict) or not isinstance(given.get("inputs"), list) or not given["inputs"]:
        raise InvalidArgumentError("The body has no 'inputs'; expected an object with a list of tensors.")
    return given


def _request(body: dict[str, Any], model: str, request: Request, limits: Limits) -> InferenceRequest:
    parameters = body.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InvalidArgumentError("The body's 'parameters' are no object.")
    priority = parameters.pop("priority", HIGHEST_PRIORITY)
    timeout_us = parameters.pop("timeout", None)
    if type(priority) is not int or type(timeout_us) not in (int, type(None)):
        raise InvalidArgumentError("Parameters 'priority' and 'timeout' are whole numbers (timeout in microseconds).")
    deadline = deadline_of(request, limits)
    if timeout_us is not None:
        deadline = deadline_after(timeout_us / 1e6, limits, f"Parameter 'timeout' is {timeout_us} microseconds")
    inputs = tuple(_tensor(each) for each in body["inputs"])
    return InferenceRequest(request.state.request_id, model, inputs, parameters, priority=priority, deadline=deadline)


def _tensor(given: Any) -> Tensor:
    try:
        name, datatype, shape, data = (given[key] for key in ("name", "datatype", "shape", "data"))
        if not isinstance(name, str) or not isinstance(datatype, str):
            raise TypeError(f"name {name!r:.40} and datatype {datatype!r:.40} must be text")  # noqa: TRY301
        if datatype == BYTES:
            return Tensor.from_strings(name, np.ravel(data).tolist())
        if datatype not in DTYPES:
            raise InvalidArgumentError(f"Tensor '{name}' has datatype '{datatype}'; expected one of {DATATYPES}.")
        return Tensor.from_numpy(name, np.array(data, DTYPES[datatype]).reshape(shape))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"An input is not a tensor: {error}; expected name, datatype, shape, and data that fits them."
        ) from None


def _body(response: InferenceResponse, call_id: Any) -> dict[str, Any]:
    return {
        "model_name": response.model,
        "model_version": response.version,
        "id": call_id or response.request_id,
        "outputs": [_json_tensor(tensor) for tensor in response.answer.outputs],
    }


def _json_tensor(tensor: Tensor) -> dict[str, Any]:
    data = tensor.strings() if tensor.datatype == BYTES else tensor.numpy().ravel().tolist()
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "data": data}
