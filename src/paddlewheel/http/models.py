"""``/v1/models``: how the calls to a model are shared out over its versions."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Body
from starlette.responses import Response

from paddlewheel.http.schemas import PROBLEMS
from paddlewheel.service import Service


def routes(service: Service) -> APIRouter:
    """Return the routes under ``/v1/models``."""
    router = APIRouter(prefix="/v1/models", tags=["Models"])

    @router.get("/{model}/weights", summary="The versions' shares of the calls", responses=PROBLEMS)
    async def weights(model: str) -> Response:
        return Response(orjson.dumps(dict(service.models.weights(model))), media_type="application/json")

    @router.put("/{model}/weights", summary="Share the calls out anew, at once", responses=PROBLEMS)
    async def set_weights(
        model: str,
        weights: Annotated[dict[str, float], Body(description="Shares by version; {} sends all to the highest.")],
    ) -> Response:
        service.models.set_weights(model, weights)
        return Response(orjson.dumps(dict(service.models.weights(model))), media_type="application/json")

    return router
