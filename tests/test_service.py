from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from paddlewheel.config import ModelSettings, PoolSettings, Settings
from paddlewheel.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    ModelLoadError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from paddlewheel.inference import InferenceRequest, Tensor, deadline_in
from paddlewheel.service import Service
from paddlewheel.telemetry.metrics import UNKNOWN, Metrics
from waiting import eventually

pytestmark = pytest.mark.usefixtures("forked")


@asynccontextmanager
async def serving(
    *, load: bool = True, batching: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Service]:
    """Give a service with one worker and an echo."""
    model = {"pipeline": "tensor", "engine": "echo", "batching": batching or {}, "engine_options": options}
    settings = Settings(
        pool={"default": PoolSettings(workers=1, nice=0)}, models={"echo": ModelSettings.model_validate(model)}
    )
    async with Service(settings, Metrics()) as service:
        if load:
            await service.load()
        yield service


def request(value: float, model: str = "echo", timeout_s: float | None = None, **tensors: Any) -> InferenceRequest:
    """Return a request of one value, or of the given arrays."""
    arrays = tensors or {"input": np.array([[value]], np.float32)}
    inputs = tuple(Tensor.from_numpy(name, array) for name, array in arrays.items())
    return InferenceRequest("id", model, inputs, deadline=None if timeout_s is None else deadline_in(timeout_s))


def counted(service: Service, outcome: str, model: str = "echo") -> float:
    """Return how many requests to the model ended so."""
    value: float = sum(
        service.metrics.requests.labels(model, version, outcome)._value.get() for version in ("1", UNKNOWN)
    )
    return value


async def until_running(service: Service) -> None:
    """Return once a request runs."""

    async def look() -> float:
        ((value,),) = ([sample.value for sample in each.samples] for each in service.metrics.running.collect())
        return float(value)

    await eventually(look, bool, 10, "a request runs")


async def test_an_answer_says_who_gave_it_and_how_long_it_took() -> None:
    """Id, model and version are the request's; queue and total times are there, in order of size."""
    async with serving(delay_s=0.05) as service:
        response = await service.infer(request(7))
        assert (response.request_id, response.model, response.version) == ("id", "echo", "1")
        assert response.answer.output("output").numpy().tolist() == [[7]]
        assert response.answer.timing_ms["total"] >= 50 > response.answer.timing_ms["queue"] >= 0
        assert counted(service, "OK") == 1


async def test_before_a_model_is_loaded() -> None:
    """Neither service nor model is ready, and a call is refused with the advice to come back."""
    async with serving(load=False) as service:
        assert not service.ready
        assert not service.model_ready("echo")
        with pytest.raises(UnavailableError, match="not loaded yet") as refusal:
            await service.infer(request(1))
        assert refusal.value.retryable
        assert refusal.value.retry_after_s == 1


async def test_a_model_that_is_not_there() -> None:
    """The refusal lists what is; it is counted without the name that was asked for."""
    async with serving() as service:
        with pytest.raises(NotFoundError, match="no model 'other'; this server has: echo"):
            await service.infer(request(1, model="other"))
        assert counted(service, "NOT_FOUND", UNKNOWN) == 1


async def test_a_model_that_could_not_be_loaded() -> None:
    """Every call hears the reason, as an error of its own."""
    async with serving(outputs=[]) as service:
        errors = []
        for _ in range(2):
            with pytest.raises(ModelLoadError, match="0 outputs for 1 ports") as refusal:
                await service.infer(request(1))
            errors.append(refusal.value)
        assert errors[0] is not errors[1]
        assert not service.ready
        assert "echo" in service.models.failures


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"input": np.zeros((0, 1), np.float32)}, "it is empty"),
        ({"input": np.zeros(1, np.float32)}, r"shape \[1\]; expected FP32 and \[-1, -1\]"),
        ({"input": np.zeros((1, 1), np.float64)}, r"FP64 .* expected FP32"),
        ({"other": np.zeros((1, 1), np.float32)}, "takes inputs 'input'; got 'other'"),
        ({"input": np.zeros((1, 1), np.float32), "b": np.zeros((1, 1), np.float32)}, "takes inputs 'input'; got 'b'"),
    ],
    ids=["no rows", "too few dimensions", "another datatype", "another name", "one too many"],
)
async def test_tensors_that_are_not_the_models(tensors: dict[str, Any], expected: str) -> None:
    """They are refused before the queue; the refusal says what was expected and what came."""
    async with serving() as service:
        with pytest.raises(InvalidArgumentError, match=expected):
            await service.infer(request(0, **tensors))
        assert counted(service, "INVALID_ARGUMENT") == 1


async def test_a_deadline_is_kept_queued_and_running() -> None:
    """The error comes on time and says in which state the request was; the next is served."""
    async with serving(delay_s=0.5, batching={"max_batch_size": 1}) as service:
        began = time.monotonic()
        running = asyncio.create_task(service.infer(request(1, timeout_s=0.2)))
        await until_running(service)
        with pytest.raises(DeadlineExceededError, match="queued"):
            await service.infer(request(2, timeout_s=0.1))
        with pytest.raises(DeadlineExceededError, match="running"):
            await running
        assert time.monotonic() - began < 0.45
        with pytest.raises(DeadlineExceededError, match="when the request arrived"):
            await service.infer(request(3, timeout_s=-1))
        assert (await service.infer(request(4))).answer.output("output").numpy().tolist() == [[4]]
        assert counted(service, "DEADLINE_EXCEEDED") == 3


async def test_the_models_own_deadline_holds_where_none_is_given() -> None:
    """`default_timeout_microseconds` is the deadline of who names none."""
    async with serving(delay_s=5, batching={"default_timeout_microseconds": 100_000}) as service:
        with pytest.raises(DeadlineExceededError):
            await service.infer(request(1))


async def test_what_would_only_expire_in_the_queue_is_refused_at_once() -> None:
    """Once the pace is known, a request that cannot make it is told when to come back; one that can is taken."""
    async with serving(delay_s=0.2, batching={"max_batch_size": 1}) as service:
        for value in range(5):
            await service.infer(request(value))
        crowd = [asyncio.create_task(service.infer(request(value))) for value in range(4)]
        await until_running(service)
        with pytest.raises(ResourceExhaustedError, match=r"in about 1\.\d s; too late .* deadline in 0\.3 s"):
            await service.infer(request(9, timeout_s=0.3))
        patient = await service.infer(request(10, timeout_s=10))
        assert patient.answer.output("output").numpy().tolist() == [[10]]
        await asyncio.gather(*crowd)


async def test_a_pace_that_was_slow_once_does_not_lock_callers_out() -> None:
    """While nothing waits a request is taken whatever the pace says: else nothing could ever show that it is over."""
    async with serving(delay_from_input=True) as service:
        for _ in range(6):
            await service.infer(request(0.3))
        for _ in range(3):
            await service.infer(request(0, timeout_s=0.25))
        assert counted(service, "OK") == 9


async def test_a_caller_who_is_cancelled_is_counted() -> None:
    """Its place is free at once and nothing else is disturbed."""
    async with serving(delay_s=0.3, batching={"max_batch_size": 1}) as service:
        running = asyncio.create_task(service.infer(request(1)))
        await until_running(service)
        waiting = asyncio.create_task(service.infer(request(2)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await running).answer.output("output").numpy().tolist() == [[1]]
        assert (counted(service, "CANCELLED"), counted(service, "OK")) == (1, 1)


async def test_a_drain_finishes_what_was_taken() -> None:
    """New requests are refused from its beginning; it ends when the last that was taken is answered."""
    async with serving(delay_s=0.3, batching={"max_batch_size": 1}) as service:
        taken = [asyncio.create_task(service.infer(request(value))) for value in range(2)]
        await until_running(service)
        drained = asyncio.create_task(service.drain(20))
        await asyncio.sleep(0)
        assert service.draining
        assert not service.ready
        with pytest.raises(UnavailableError, match="shutting down"):
            await service.infer(request(9))
        await drained
        answers = await asyncio.gather(*taken)
        assert [answer.answer.output("output").numpy().tolist() for answer in answers] == [[[0]], [[1]]]


async def test_a_drain_ends_with_its_grace_period() -> None:
    """What is not done by then is told so, and counted as such."""
    async with serving(delay_s=60) as service:
        taken = [asyncio.create_task(service.infer(request(value))) for value in range(2)]
        await until_running(service)
        await service.drain(0.2)
        for each in taken:
            with pytest.raises(UnavailableError, match="shutting down"):
                await each
        assert counted(service, "UNAVAILABLE") == 2
