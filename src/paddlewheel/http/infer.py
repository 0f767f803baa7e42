"""``POST /v2/models/{model}/infer``: the Open Inference Protocol's call, with tensors in JSON or in binary.

The hot route: a plain ASGI application beside FastAPI's routes. A body with binary tensors is a JSON header, whose
length a request header tells, followed by the tensors in the order in which the JSON names them; so is an answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.types import Receive, Scope, Send

from paddlewheel.caller import STICKY_KEY, read_classes, read_options
from paddlewheel.config import Limits
from paddlewheel.errors import InvalidArgumentError, PaddlewheelError, PayloadTooLargeError
from paddlewheel.http.calls import deadline_of, idempotency_key, infer, prefers_async, read_body
from paddlewheel.http.job_body import accepted
from paddlewheel.http.json_tensors import read_tensor, write_tensor
from paddlewheel.http.problems import problem
from paddlewheel.inference import Buffer, InferenceRequest, InferenceResponse, Tensor
from paddlewheel.jobs import JobRunner
from paddlewheel.jobs.job import new_job_id
from paddlewheel.service import Service

HEADER_LENGTH: Final = "Inference-Header-Content-Length"
_PATH: Final = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")
_SMALL: Final = 1 << 16
_OF_THIS_ENCODING: Final = ("binary_data_output", "nan")


class _Route:
    """What metrics know the route by."""

    path = "/v2/models/{model}/infer"


class InferEndpoint:
    """ASGI application for the infer route; `otherwise` gets every other request."""

    def __init__(self, service: Service, jobs: JobRunner, otherwise: Any) -> None:
        self._service = service
        self._jobs = jobs
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if found is None:
            await self._otherwise(scope, receive, send)
            return
        scope["route"] = _Route
        try:
            await self._infer(found[1], found[2], scope, receive, send)
        except PaddlewheelError as error:
            await problem(error, scope)(scope, receive, send)

    async def _infer(self, model: str, version: str | None, scope: Scope, receive: Receive, send: Send) -> None:
        limits = self._service.settings.limits
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with self._service.refusals(model):
            call = Call(await read_body(headers, receive, limits.max_message_bytes), headers, limits)
            wants_job = prefers_async(headers)
            request_id = new_job_id(time.time()) if wants_job else scope["state"]["request_id"]
            request = call.request(request_id, model, version)
        if wants_job:
            job = await self._jobs.submit(request, key=idempotency_key(headers))
            await accepted(job, {"Preference-Applied": "respond-async"})(scope, receive, send)
            return
        response = await infer(self._service, request, scope)
        header, buffers = call.answer(response)
        await _send(header, buffers, limits, send)


class Call:
    """One call: what its body says, and how its answer is to be written."""

    def __init__(self, body: bytes, headers: Mapping[str, str], limits: Limits) -> None:
        self._headers = headers
        self._limits = limits
        length = _header_length(headers, len(body))
        self._body = _object(memoryview(body)[:length])
        self._binary = memoryview(body)[length:]
        self._parameters = _mapping(self._body, "parameters")
        self._outputs = [_named(each) for each in _list(self._body, "outputs")]

    def request(self, request_id: str, model: str, version: str | None) -> InferenceRequest:
        """Return what to infer; raises :class:`InvalidArgumentError`."""
        parameters = {name: value for name, value in self._parameters.items() if name not in _OF_THIS_ENCODING}
        deadline = deadline_of(self._headers, self._limits)
        options = read_options(parameters, self._limits, deadline=deadline, sticky_key=self._headers.get(STICKY_KEY))
        inputs = tuple(self._tensor(_named(each)) for each in _list(self._body, "inputs"))
        if len(self._binary):
            raise InvalidArgumentError(f"The body has {len(self._binary)} bytes after its last tensor; expected none.")
        return InferenceRequest(
            request_id,
            model,
            inputs,
            options.parameters,
            version=version,
            priority=options.priority,
            deadline=options.deadline,
            sticky_key=options.sticky_key,
            outputs=tuple(each["name"] for each in self._outputs),
            classes=read_classes((each["name"], _mapping(each, "parameters")) for each in self._outputs),
        )

    def _tensor(self, given: Mapping[str, Any]) -> Tensor:
        name, datatype, shape = given["name"], given.get("datatype"), given.get("shape")
        if not isinstance(datatype, str) or not isinstance(shape, list) or not all(type(side) is int for side in shape):
            raise InvalidArgumentError(
                f"Input '{name:.100}' needs a datatype and a shape, a list of whole numbers; got {datatype!r:.40} and "
                f"{shape!r:.40}."
            )
        parameters = _mapping(given, "parameters")
        if any(side < 0 for side in shape):
            raise InvalidArgumentError(f"Input '{name:.100}' has shape {shape}; expected no side below 0.")
        size = parameters.get("binary_data_size")
        if size is None:
            return read_tensor(name, datatype, tuple(shape), given.get("data"), parameters)
        if type(size) is not int or not 0 <= size <= len(self._binary) or "data" in given:
            raise InvalidArgumentError(
                f"Input '{name:.100}' has binary_data_size {size!r:.40}; expected that many bytes after the JSON "
                f"(header {HEADER_LENGTH}), where {len(self._binary)} are left, and no 'data' beside."
            )
        data, self._binary = self._binary[:size], self._binary[size:]
        return Tensor(name, datatype, tuple(shape), data)

    def answer(self, response: InferenceResponse) -> tuple[dict[str, Any], list[Buffer]]:
        """Return the JSON of the answer, and the binary tensors that follow it."""
        everything = bool(self._parameters.get("binary_data_output", False))
        asked = {each["name"]: _mapping(each, "parameters").get("binary_data", everything) for each in self._outputs}
        names_for_nan = self._parameters.get("nan") == "string"
        outputs, buffers = [], []
        for tensor in response.answer.outputs:
            if asked.get(tensor.name, everything):
                size = memoryview(tensor.data).nbytes
                outputs.append(
                    {
                        "name": tensor.name,
                        "datatype": tensor.datatype,
                        "shape": list(tensor.shape),
                        "parameters": {"binary_data_size": size},
                    }
                )
                buffers.append(tensor.data)
            else:
                outputs.append(write_tensor(tensor, names_for_nan=names_for_nan))
        header: dict[str, Any] = {
            "model_name": response.model,
            "model_version": response.version,
            "id": self._body.get("id") or response.request_id,
            "outputs": outputs,
        }
        if response.answer.parameters:
            header["parameters"] = dict(response.answer.parameters)
        return header, buffers


async def _send(header: dict[str, Any], buffers: list[Buffer], limits: Limits, send: Send) -> None:
    head = orjson.dumps(header, option=orjson.OPT_SERIALIZE_NUMPY)
    size = len(head) + sum(memoryview(buffer).nbytes for buffer in buffers)
    if size > limits.max_message_bytes:
        raise PayloadTooLargeError(
            f"The answer has {size} bytes; at most {limits.max_message_bytes} are sent (setting "
            "limits.max_message_bytes)."
        )
    headers = [(b"content-length", b"%d" % size)]
    if buffers:
        headers += [
            (b"content-type", b"application/octet-stream"),
            (HEADER_LENGTH.lower().encode(), b"%d" % len(head)),
        ]
    else:
        headers.append((b"content-type", b"application/json"))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if size <= _SMALL:
        await send({"type": "http.response.body", "body": b"".join((head, *buffers))})
        return
    await send({"type": "http.response.body", "body": head, "more_body": bool(buffers)})
    for index, buffer in enumerate(buffers, 1):
        await send({"type": "http.response.body", "body": buffer, "more_body": index < len(buffers)})


def _header_length(headers: Mapping[str, str], most: int) -> int:
    """Return how many bytes of the body are JSON: all, unless the header says otherwise."""
    text = headers.get(HEADER_LENGTH.lower())
    if text is None:
        return most
    if not text.isdecimal() or not text.isascii() or len(text) > len(str(most)) or int(text) > most:
        raise InvalidArgumentError(f"{HEADER_LENGTH} is {text!r:.40}; expected the length of the JSON, at most {most}.")
    return int(text)


def _object(body: bytes | memoryview) -> dict[str, Any]:
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError(f"The body is not JSON: {error}") from None
    if not isinstance(given, dict) or not isinstance(given.get("inputs"), list) or not given["inputs"]:
        raise InvalidArgumentError("The body has no 'inputs'; expected an object with a list of tensors.")
    return given


def _list(body: Mapping[str, Any], key: str) -> list[Any]:
    given = body.get(key) or []
    if not isinstance(given, list):
        raise InvalidArgumentError(f"The body's '{key}' is no list.")
    return given


def _mapping(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    given = body.get(key) or {}
    if not isinstance(given, dict):
        raise InvalidArgumentError(f"The body has '{key}' that are no object.")
    return given


def _named(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise InvalidArgumentError(
            "The body has a tensor without a name; expected an object with name, datatype, shape."
        )
    return given
