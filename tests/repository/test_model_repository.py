"""A repository of real networks, loaded, updated and unloaded in this process."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnx_models import write_adder
from paddlewheel.config import PoolSettings, RepositorySettings, Settings
from paddlewheel.errors import ConflictError, InvalidArgumentError, ModelLoadError, NotFoundError, UnavailableError
from paddlewheel.inference import InferenceRequest, InferenceResponse, Tensor
from paddlewheel.repository.folder import ModelFolder
from paddlewheel.service import Service
from paddlewheel.telemetry.metrics import Metrics
from waiting import eventually

pytestmark = pytest.mark.usefixtures("forked")
BROKEN = b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"


@asynccontextmanager
async def serving(folder: Path, control: str = "explicit", workers: int = 1, **settings: Any) -> AsyncIterator[Service]:
    """Give a service over a repository."""
    repository = RepositorySettings.model_validate({"path": folder, "control": control, "poll_s": 0.05})
    pool = {"default": PoolSettings(workers=workers, nice=0)}
    async with Service(Settings(pool=pool, repository=repository, **settings), Metrics()) as service:
        await service.load()
        yield service


def put(folder: Path, version: int, value: float, name: str = "adder") -> None:
    """Put a version of an adder into the repository, in one step."""
    write_adder(folder / "new" / "model.onnx", value)
    (folder / name).mkdir(exist_ok=True)
    shutil.rmtree(folder / name / str(version), ignore_errors=True)
    (folder / "new").rename(folder / name / str(version))


async def call(service: Service, rows: int = 1, name: str = "adder", **request: Any) -> InferenceResponse:
    """Call an adder with zeros."""
    tensor = Tensor.from_numpy("x", np.zeros((rows, 2), np.float32))
    return await service.infer(InferenceRequest("id", name, (tensor,), **request))


async def added(service: Service, **request: Any) -> tuple[str, float]:
    """Return which version answered a call, and what it added."""
    response = await call(service, **request)
    return response.version, float(response.answer.output("y").numpy()[0, 0])


def states(service: Service) -> dict[str, str]:
    """Return the state of each version of the adder."""
    return {entry.version: entry.state for entry in service.models.index() if entry.name == "adder"}


async def test_a_folder_is_served_without_a_settings_file(tmp_path: Path) -> None:
    """The signature is the network's own, the highest version serves, and the rest of the settings have defaults."""
    for version, value in ((2, 20), (10, 100)):
        put(tmp_path, version, value)
    async with serving(tmp_path, "none") as service:
        assert service.ready
        assert await added(service) == ("10", 100)
        description = service.models.describe("adder")
        (x,), (y,) = description.signature.inputs, description.signature.outputs
        assert (x.name, x.datatype, x.shape) == ("x", "FP32", (-1, 2))
        assert (y.name, y.datatype, y.shape) == ("y", "FP32", (-1, 2))
        assert (description.version, description.versions) == ("10", ("10",))
        assert description.max_batch_size == 8
        with pytest.raises(NotFoundError, match="no version '2'; served: 10"):
            await call(service, version="2")
        with pytest.raises(ConflictError, match="explicit"):
            await service.models.load("adder")


@pytest.mark.parametrize(("policy", "expected"), [('"all"', ("1", "2", "3")), ('["1", "3"]', ("1", "3"))])
async def test_the_version_policy_says_which_serve(tmp_path: Path, policy: str, expected: tuple[str, ...]) -> None:
    """Each of them can be called by name; a call that names none gets the highest."""
    for version in (1, 2, 3):
        put(tmp_path, version, version)
    (tmp_path / "adder" / "model.toml").write_text(f"version_policy = {policy}")
    async with serving(tmp_path, "none") as service:
        assert service.models.describe("adder").versions == expected
        assert [await added(service, version=version) for version in expected] == [
            (each, int(each)) for each in expected
        ]
        assert await added(service) == ("3", 3)


async def test_loaded_updated_and_unloaded_while_it_serves(tmp_path: Path) -> None:
    """Not loaded before it is asked for; a new version takes over and loses no call; unloaded it is not ready."""
    put(tmp_path, 1, 1)
    async with serving(tmp_path) as service:
        assert not service.ready
        assert states(service) == {"1": "UNAVAILABLE"}
        with pytest.raises(UnavailableError, match="'adder' is not loaded"):
            await call(service)
        await service.models.load("adder")
        assert service.ready
        assert await added(service) == ("1", 1)
        put(tmp_path, 2, 2)
        loading = asyncio.create_task(service.models.load("adder"))
        seen = []
        while not loading.done():
            seen.append((await added(service))[0])
        assert seen == sorted(seen), "never back"
        assert "1" in seen, "the old one serves until the new one is warm"
        assert await added(service) == ("2", 2)
        await eventually(lambda: _async(states(service)), lambda seen: seen == {"2": "READY"}, 10, "1 is gone")
        assert len(service.models.pools["default"].models) == 1
        await service.models.unload("adder")
        assert not service.ready
        with pytest.raises(UnavailableError):
            await call(service)
        await service.models.load("adder")
        assert await added(service) == ("2", 2)


async def _async(value: Any) -> Any:
    return value


async def test_the_files_of_a_version_may_change(tmp_path: Path) -> None:
    """Loaded again, it computes what its new files say; loaded without a change, nothing is loaded."""
    put(tmp_path, 1, 1)
    async with serving(tmp_path) as service:
        await service.models.load("adder")
        worker = next(iter(service.models.pools["default"]._places))
        await service.models.load("adder")
        assert next(iter(service.models.pools["default"]._places)) is worker
        put(tmp_path, 1, 5)
        await service.models.load("adder")
        assert await added(service) == ("1", 5)


async def test_a_broken_version_leaves_the_old_one_in_place(tmp_path: Path) -> None:
    """The load says what is wrong with which file; the index too; calls, readiness and the worker are as before."""
    put(tmp_path, 1, 1)
    async with serving(tmp_path) as service:
        await service.models.load("adder")
        (tmp_path / "adder" / "2").mkdir()
        (tmp_path / "adder" / "2" / "model.onnx").write_bytes(BROKEN)
        with pytest.raises(ModelLoadError, match=r"2/model\.onnx.* is damaged"):
            await service.models.load("adder")
        assert service.ready
        assert await added(service) == ("1", 1)
        assert states(service) == {"1": "READY", "2": "UNAVAILABLE"}
        (reason,) = (entry.reason for entry in service.models.index() if entry.version == "2")
        assert "damaged" in reason
        with pytest.raises(ModelLoadError, match="damaged"):
            await call(service, version="2")
        put(tmp_path, 2, 2)
        await service.models.load("adder")
        assert await added(service) == ("2", 2)


async def test_a_model_that_ends_its_worker_ends_none_that_serves(tmp_path: Path) -> None:
    """It is met by a worker that does not serve yet, twice, and then left out with the reason."""
    put(tmp_path, 1, 1)
    (tmp_path / "crashes" / "1").mkdir(parents=True)
    (tmp_path / "crashes" / "model.toml").write_text('engine = "echo"\n[engine_options]\nexit_at_load = true\n')
    async with serving(tmp_path) as service:
        await service.models.load("adder")
        with pytest.raises(ModelLoadError, match="ends the worker process"):
            await service.models.load("crashes")
        assert await added(service) == ("1", 1)
        assert service.models.pools["default"].workers == 1
        assert service.metrics.worker_restarts.labels("default", "crash")._value.get() == 0


async def test_the_repository_is_followed(tmp_path: Path) -> None:
    """With `poll`, versions and models that come are loaded and those that go are unloaded, without a call."""
    put(tmp_path, 1, 1)
    async with serving(tmp_path, "poll") as service:
        assert await added(service) == ("1", 1)
        put(tmp_path, 2, 2)
        await eventually(lambda: added(service), lambda seen: seen == ("2", 2), 20, "version 2")
        put(tmp_path, 1, 7, name="other")
        await eventually(lambda: _async(service.model_ready("other")), bool, 20, "another model")
        shutil.rmtree(tmp_path / "other")
        await eventually(lambda: _async(service.models.names()), lambda seen: seen == ("adder",), 20, "it goes")
        with pytest.raises(NotFoundError):
            await call(service, name="other")


async def test_a_file_that_vanishes_does_not_end_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the folder that fails, because somebody is at work in it, is followed by the next."""
    put(tmp_path, 1, 1)
    state, looks = ModelFolder.state, iter([True] * 3)

    def vanishing(folder: ModelFolder, name: str) -> object:
        if next(looks, False):
            (tmp_path / "gone").stat()
        return state(folder, name)

    async with serving(tmp_path, "poll") as service:
        monkeypatch.setattr(ModelFolder, "state", vanishing)
        put(tmp_path, 2, 2)
        await eventually(lambda: added(service), lambda seen: seen == ("2", 2), 20, "version 2")
        assert next(looks, None) is None


async def test_weights_share_the_calls_out(tmp_path: Path) -> None:
    """By their size and by chance; with a key always alike; a change is at once, and moves few keys."""
    for version in (1, 2):
        put(tmp_path, version, version)
    (tmp_path / "adder" / "model.toml").write_text('version_policy = "all"\nweights = { 1 = 90, 2 = 10 }\n')
    async with serving(tmp_path, "none") as service:
        models = service.models

        def chosen(key: str | None) -> str:
            return models.find("adder", sticky_key=key)[1].spec.version

        by_chance = [chosen(None) for _ in range(2000)]
        assert 120 < by_chance.count("2") < 290
        before = {str(key): chosen(str(key)) for key in range(2000)}
        assert {key: chosen(key) for key in before} == before
        assert 120 < list(before.values()).count("2") < 290
        models.set_weights("adder", {"1": 80, "2": 20})
        after = {key: chosen(key) for key in before}
        assert 300 < list(after.values()).count("2") < 500
        assert all(after[key] == "2" for key, version in before.items() if version == "2"), "nobody goes back"
        models.set_weights("adder", {"1": 0, "2": 1})
        assert {chosen(None) for _ in range(100)} == {"2"}
        assert await added(service, version="1") == ("1", 1)
        with pytest.raises(InvalidArgumentError, match=r"its versions \(1, 2\)"):
            models.set_weights("adder", {"3": 1})


async def test_more_rows_than_a_batch_are_split(tmp_path: Path) -> None:
    """The caller gets all rows in order; no batch has more than the limit."""
    put(tmp_path, 1, 1)
    (tmp_path / "adder" / "model.toml").write_text("[batching]\nmax_batch_size = 4\n")
    async with serving(tmp_path, "none", workers=2) as service:
        x = np.arange(22, dtype=np.float32).reshape(11, 2)
        response = await service.infer(InferenceRequest("id", "adder", (Tensor.from_numpy("x", x),)))
        assert np.array_equal(response.answer.output("y").numpy(), x + 1)
        (statistics,) = service.models.statistics("adder")
        assert statistics.inference_count == 11
        assert max(statistics.batches) <= 4
        assert statistics.success.count == 1


async def test_a_network_that_takes_one_size_is_called_with_that(tmp_path: Path) -> None:
    """Where axis 0 is fixed nothing is put together and nothing is split; another size is refused."""
    write_adder(tmp_path / "fixed" / "1" / "model.onnx", 1, rows=3)
    async with serving(tmp_path, "none") as service:
        assert service.models.describe("fixed").max_batch_size == 1
        answers = await asyncio.gather(*(call(service, 3, "fixed") for _ in range(4)))
        assert all(answer.answer.output("y").shape == (3, 2) for answer in answers)
        assert set(service.models.statistics("fixed")[0].batches) == {1}
        with pytest.raises(InvalidArgumentError, match=r"shape \[1, 2\]; expected FP32 and \[3, 2\]"):
            await call(service, 1, "fixed")


async def test_padding_lets_shapes_share(tmp_path: Path) -> None:
    """Where the settings call it harmless, other lengths go together, rounded up; an answer is its call's alone."""
    write_adder(tmp_path / "open" / "1" / "model.onnx", 1, columns=None)
    (tmp_path / "open" / "model.toml").write_text(
        "[padding.x]\naxes = [1]\nmultiple = 4\nvalue = 9\n[batching]\nmax_queue_delay_microseconds = 100_000\n"
    )
    async with serving(tmp_path, "none") as service:

        async def padded(columns: int) -> list[float]:
            tensor = Tensor.from_numpy("x", np.zeros((1, columns), np.float32))
            response = await service.infer(InferenceRequest("id", "open", (tensor,)))
            row: list[float] = response.answer.output("y").numpy()[0].tolist()
            return row

        assert await asyncio.gather(padded(3), padded(4), padded(1)) == [[1, 1, 1, 10], [1, 1, 1, 1], [1, 10, 10, 10]]
        assert set(service.models.statistics("open")[0].batches) == {3}
        assert await padded(5) == [1, 1, 1, 1, 1, 10, 10, 10]


async def test_only_the_outputs_that_are_wanted_come_back(tmp_path: Path) -> None:
    """By name; one that the model does not have is refused with those that it has."""
    put(tmp_path, 1, 1)
    async with serving(tmp_path, "none") as service:
        assert [tensor.name for tensor in (await call(service, outputs=("y",))).answer.outputs] == ["y"]
        with pytest.raises(InvalidArgumentError, match="no output 'z'; expected some of 'y'"):
            await call(service, outputs=("z",))


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        (
            "batchng = 1",
            r"models\.adder\.batchng .*model\.toml.*: no such setting; did you mean models\.adder\.batching",
        ),
        ("version_policy = [", "cannot be read"),
        ('pool = "other"', "expected one of: default"),
        ('device = "gpu:3"', "no pool has it"),
    ],
)
async def test_wrong_settings_of_a_model_name_the_file(tmp_path: Path, toml: str, expected: str) -> None:
    """The model is not served, and says why; another one is."""
    put(tmp_path, 1, 1)
    put(tmp_path, 1, 1, name="good")
    (tmp_path / "adder" / "model.toml").write_text(toml)
    async with serving(tmp_path, "none") as service:
        assert not service.ready
        assert await added(service, name="good") == ("1", 1)
        with pytest.raises(Exception, match=expected):
            await call(service)


async def test_a_link_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    """Neither a model nor a version outside of the folder can be had; a link within it can."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    put(outside, 1, 1)
    put(root, 1, 1)
    (root / "linked").symlink_to(outside / "adder")
    (root / "adder" / "2").symlink_to(outside / "adder" / "1")
    (root / "adder" / "3").symlink_to(root / "adder" / "1")
    async with serving(root, "none") as service:
        assert service.models.names() == ("adder",)
        assert await added(service) == ("3", 1)


async def test_a_network_of_ones_own_answers_alike_on_every_cpu(tmp_path: Path) -> None:
    """Its precision is fp32, whatever the CPU could do."""
    put(tmp_path, 1, 1.0)
    async with serving(tmp_path, "none") as service:
        assert service.models.describe("adder").spec.precision == "fp32"
