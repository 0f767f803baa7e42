"""The Open Inference Protocol's service, as Triton's clients call it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from google.protobuf.json_format import ParseDict

from paddlewheel.errors import InvalidArgumentError, PaddlewheelError, shutting_down
from paddlewheel.grpc.calls import Call, Rpc, Send, rpcs
from paddlewheel.grpc.codec import read_request, write_response
from paddlewheel.grpc.protos import open_inference_pb2 as pb
from paddlewheel.open_inference import config_body, index_body, model_body, server_body, statistics_body
from paddlewheel.service import Service

SERVICE: Final = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
_IN_FLIGHT: Final = 64
"""Most requests of one stream that are under way at once; further ones are read when others are answered."""
_MARK_FINAL, _IS_FINAL = "triton_enable_empty_final_response", "triton_final_response"


class OpenInference:
    """Serves the protocol; streams end once `closing` is set and what they sent before is answered."""

    def __init__(self, service: Service, closing: asyncio.Event) -> None:
        self._service = service
        self._models = service.models
        self._limits = service.settings.limits
        self._closing = closing

    def rpcs(self) -> list[Rpc]:
        """Return the methods of the service."""
        methods: dict[str, Any] = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "ModelInfer": self._infer,
            "ModelStreamInfer": self._stream_infer,
            "RepositoryIndex": self._repository_index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }
        return rpcs(SERVICE, methods)

    async def _server_live(self, _request: pb.ServerLiveRequest, _: Call) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def _server_ready(self, _request: pb.ServerReadyRequest, _: Call) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._service.ready)

    async def _model_ready(self, request: pb.ModelReadyRequest, _: Call) -> pb.ModelReadyResponse:
        return pb.ModelReadyResponse(ready=self._service.model_ready(request.name, request.version or None))

    async def _server_metadata(self, _request: pb.ServerMetadataRequest, _: Call) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(**server_body())

    async def _model_metadata(self, request: pb.ModelMetadataRequest, _: Call) -> pb.ModelMetadataResponse:
        body = model_body(self._models.describe(request.name, request.version or None))
        return ParseDict(body, pb.ModelMetadataResponse())

    async def _model_config(self, request: pb.ModelConfigRequest, _: Call) -> pb.ModelConfigResponse:
        body = config_body(self._models.describe(request.name, request.version or None))
        return ParseDict({"config": body}, pb.ModelConfigResponse())

    async def _model_statistics(self, request: pb.ModelStatisticsRequest, _: Call) -> pb.ModelStatisticsResponse:
        found = self._models.statistics(request.name or None, request.version or None)
        return ParseDict({"model_stats": [statistics_body(each) for each in found]}, pb.ModelStatisticsResponse())

    async def _repository_index(self, request: pb.RepositoryIndexRequest, _: Call) -> pb.RepositoryIndexResponse:
        body = index_body(self._models.index(), only_ready=request.ready)
        return ParseDict({"models": body}, pb.RepositoryIndexResponse())

    async def _load(self, request: pb.RepositoryModelLoadRequest, _: Call) -> pb.RepositoryModelLoadResponse:
        if request.parameters:
            raise InvalidArgumentError(
                "A load takes no parameters here; edit the model's model.toml and load it again."
            )
        await self._models.load(request.model_name)
        return pb.RepositoryModelLoadResponse()

    async def _unload(self, request: pb.RepositoryModelUnloadRequest, _: Call) -> pb.RepositoryModelUnloadResponse:
        await self._models.unload(request.model_name)
        return pb.RepositoryModelUnloadResponse()

    async def _infer(self, message: pb.ModelInferRequest, call: Call) -> pb.ModelInferResponse:
        with self._service.refusals(message.model_name):
            request = read_request(message, call, self._limits)
        return write_response(await self._service.infer(request), message.id)

    async def _stream_infer(self, messages: AsyncIterator[pb.ModelInferRequest], call: Call, send: Send) -> None:
        """Answer each message when its answer is there; one that fails is an answer too, and the stream goes on."""
        answering: set[asyncio.Task[None]] = set()
        places, sending = asyncio.Semaphore(_IN_FLIGHT), asyncio.Lock()

        async def answer(message: pb.ModelInferRequest) -> None:
            response = await self._stream_answer(message, call)
            async with sending:
                await send(response)
            places.release()

        async def read() -> None:
            async for message in messages:
                await places.acquire()
                task = asyncio.create_task(answer(message))
                answering.add(task)
                task.add_done_callback(answering.discard)

        reading, closing = asyncio.create_task(read()), asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait({reading, closing}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*answering)
            if closing.done():
                raise shutting_down()
            await reading
        finally:
            for task in (reading, closing, *answering):
                task.cancel()

    async def _stream_answer(self, message: pb.ModelInferRequest, call: Call) -> pb.ModelStreamInferResponse:
        try:
            response = await self._infer(message, call)
        except PaddlewheelError as error:
            failed = pb.ModelInferResponse(model_name=message.model_name, id=message.id)
            return pb.ModelStreamInferResponse(error_message=error.detail, infer_response=failed)
        if message.parameters[_MARK_FINAL].bool_param:
            response.parameters[_IS_FINAL].bool_param = True
        return pb.ModelStreamInferResponse(infer_response=response)
