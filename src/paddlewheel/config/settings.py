"""The settings tree. Every field has its unit in its name and is safe to leave out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Device = Annotated[str, Field(pattern=r"^(cpu|gpu:\d+)$")]
Version = Annotated[str, Field(pattern=r"^[1-9]\d{0,17}$")]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "paddlewheel"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ServerSettings(_Section):
    """Where the server listens and how it stops."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every interface."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """HTTP port; 0 takes a free one."""
    grpc_port: Annotated[int, Field(ge=0, le=65535)] | Literal["off"] = 8001
    """gRPC port; 0 takes a free one, `off` serves no gRPC."""
    data_dir: Path = Field(default_factory=_data_home)
    """Where jobs and caches are kept."""
    drain_s: PositiveFloat = 30.0
    """On SIGTERM, how long queued and running requests may take before they are dropped."""
    drain_delay_s: Annotated[float, Field(ge=0)] = 0.0
    """On SIGTERM, how long requests are still taken after readiness went false (for load balancers)."""
    keep_alive_s: PositiveFloat = 75.0
    """How long an idle connection is kept: longer than the 60 s of common proxies, so that they close first."""


class Limits(_Section):
    """What a request may cost at most; enforced before work is done."""

    max_body_bytes: PositiveInt = 20_000_000
    """Largest body of a request with pictures."""
    max_message_bytes: Annotated[int, Field(ge=1, le=(1 << 31) - 1)] = 100_000_000
    """Largest message with tensors (under `/v2` and over gRPC), request or response."""
    max_upload_bytes: PositiveInt = 1_000_000_000
    """Largest tensor that comes in chunks (gRPC `PredictStream`), and most that are on their way together."""
    max_pixels: PositiveInt = 50_000_000
    """Largest picture, as width x height; rules every decoder."""
    receive_timeout_s: PositiveFloat = 30.0
    """How long a client may be silent while it sends a body."""
    max_deadline_s: PositiveFloat = 600.0
    """Longest deadline that a caller may ask for."""


class FetchSettings(_Section):
    """Pictures that callers name by their address; by default none is fetched."""

    hosts: tuple[str, ...] = ()
    """Hosts that may be asked, each with its port where that is not the usual one: `img.example.com`, `cdn:8080`."""
    timeout_s: PositiveFloat = 10.0
    """How long one may take in all."""


class PoolSettings(_Section):
    """The worker processes of one device."""

    device: Device = "cpu"
    """`cpu` or `gpu:<id>`."""
    workers: PositiveInt | Literal["auto"] = "auto"
    """Number of processes; `auto` is one a core on a CPU (within the container's quota), one on a GPU."""
    threads: PositiveInt | Literal["auto"] = "auto"
    """Threads of a worker while the pool is busy; `auto` shares the cores out."""
    elastic_threads: bool = True
    """Let a request that is alone use every core (compiles each model twice)."""
    memory_limit_mb: PositiveInt = 3072
    """A worker over this resident size is replaced, without losing work."""
    hang_timeout_s: PositiveFloat = 60.0
    """A batch that runs longer is taken for a hang: its worker is killed."""
    nice: Annotated[int, Field(ge=0, le=19)] = 5
    """Niceness of workers, so that the front process answers while every core is busy."""


class Batching(_Section):
    """How a model's requests wait and are put together (Triton's names)."""

    max_batch_size: Annotated[int, Field(ge=0, le=4096)] | None = None
    """Most rows in a batch: a picture is one, a tensor request has as many as its first dimension says. 0: the first
    dimension counts no rows, so requests are neither put together nor split. Left out: 1 for pictures on a CPU
    (batches gain nothing there), else 8."""
    preferred_batch_size: PositiveInt | None = None
    """A batch of so many rows is ready at once."""
    max_queue_delay_microseconds: Annotated[int, Field(ge=0)] = 0
    """How long the head of the queue may wait for company while a worker is idle."""
    max_queue_size: PositiveInt = 100
    """Most waiting requests; one more is refused with 503."""
    priority_levels: PositiveInt = 3
    """Priorities 1 (highest) to this."""
    default_timeout_microseconds: PositiveInt = 60_000_000
    """Deadline of a request that names none."""


class PaddingSettings(_Section):
    """How an input may be padded, where that does no harm, so that requests of other shapes share a batch."""

    axes: tuple[PositiveInt, ...]
    """The axes that are padded at their end; 0, the rows, is none of them."""
    multiple: Annotated[int, Field(ge=2)]
    """They are rounded up to a multiple of this."""
    value: float = 0.0
    """What is put there."""


class WarmUpTensor(_Section):
    """An input of a sample that a model is run with before it is ready."""

    shape: tuple[PositiveInt, ...]
    """With the rows."""
    value: float | Literal["random"] = "random"
    """Every element; `random` is between 0 and 1."""


class ModelSettings(_Section):
    """One served model."""

    pipeline: Literal["ocr", "tensor"] = "ocr"
    """The code around the predictors."""
    pack: Name | None = None
    """A catalog pack to take the files from."""
    engine: Literal["auto", "paddle", "openvino", "onnxruntime", "echo"] = "auto"
    """`auto` is the fastest installed engine that loads the model's format on the pool's device."""
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] = "auto"
    """`auto` is bf16 for packs on CPUs that have it; else fp32, so that one's own networks answer alike everywhere."""
    pool: Name = "default"
    """The pool whose workers hold this model."""
    device: Device | None = None
    """Takes the pool that has this device instead of one by name."""
    version_policy: Literal["latest", "all"] | tuple[Version, ...] = "latest"
    """Which versions of a repository's model are served: the highest, all, or those that are listed."""
    weights: dict[Version, Weight] = Field(default_factory=dict)
    """Shares of the calls that name no version; left out, all go to the highest version."""
    warm_up: tuple[dict[str, WarmUpTensor], ...] = ()
    """Samples, one tensor an input, that the model is run with before it is ready. Left out, a model whose dimensions
    are fixed is run for each size of batch."""
    labels: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    """A file beside `model.toml` with the names of a classifier's classes, one a line, for callers that ask for the
    best classes instead of scores."""
    padding: dict[str, PaddingSettings] = Field(default_factory=dict)
    """Inputs that may be padded; outputs come back as the padded input gives them."""
    batching: Batching = Batching()
    """Queue and batches."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Defaults for the pipeline's parameters of a call, under the same names."""
    engine_options: dict[str, Any] = Field(default_factory=dict)
    """Settings that only this engine knows; an unknown one is refused at load."""


class RepositorySettings(_Section):
    """The folder of models that users bring: `<model>/<version>/` with the files, `<model>/model.toml` beside them."""

    path: Path | None = None
    """The folder; left out, there is none."""
    control: Literal["none", "explicit", "poll"] = "none"
    """When models are loaded: all at start; when a client asks; at start and whenever the folder has changed."""
    poll_s: PositiveFloat = 5.0
    """How often the folder is looked at, with `poll`."""


class JobSettings(_Section):
    """Asynchronous calls."""

    store: Literal["sqlite", "memory"] = "sqlite"
    """Where jobs are kept: in a file, where they outlive the server, or in its memory."""
    file: Path | None = None
    """The file of the SQLite store, for one server; left out, `jobs.sqlite` in `server.data_dir`."""
    ttl_s: PositiveFloat = 3600.0
    """How long a result can be fetched."""
    deadline_s: PositiveFloat = 600.0
    """How long a job may wait and run in all."""
    max_jobs: PositiveInt = 10_000
    """Most jobs kept, finished ones included; one more is refused with 503."""
    max_bytes: PositiveInt = 4_000_000_000
    """Most bytes kept of what jobs were called with and what came of them."""
    max_attempts: PositiveInt = 3
    """How often a job is tried that ends its workers, or that is under way when the server ends."""
    lease_s: PositiveFloat = 30.0
    """How long a running job is left alone that nobody is heard of; then it is tried again."""
    patience_s: PositiveFloat = 10.0
    """How long a job waits behind synchronous calls before it waits among them."""
    concurrency: PositiveInt = 16
    """Most jobs that are under way at once; the others wait in the store."""


class Telemetry(_Section):
    """What is said about the running server."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is written."""
    log_format: Literal["auto", "console", "json"] = "auto"
    """`auto` is for people on a terminal, JSON elsewhere."""
    engine_logs: bool = False
    """Let the engines' own log lines through."""


def _usual_models(settings: dict[str, Any]) -> dict[str, ModelSettings]:
    return {} if settings["repository"].path is not None else {"ocr": ModelSettings(pack="ppocrv6-small")}


class Settings(_Section):
    """The whole tree."""

    server: ServerSettings = ServerSettings()
    limits: Limits = Limits()
    fetch: FetchSettings = FetchSettings()
    models_dir: Path = Field(default_factory=lambda: _data_home() / "models")
    """Where model packs are kept."""
    strict: bool = False
    """Exit at start if a model cannot be loaded, instead of serving the others while not ready."""
    pool: dict[Name, PoolSettings] = Field(default_factory=lambda: {"default": PoolSettings()})
    repository: RepositorySettings = RepositorySettings()
    models: dict[Name, ModelSettings] = Field(default_factory=_usual_models)
    """Left out, and without a repository, it is `ocr` with the pack `ppocrv6-small`."""
    jobs: JobSettings = JobSettings()
    telemetry: Telemetry = Telemetry()

    @model_validator(mode="after")
    def _every_model_has_a_pool(self) -> Settings:
        for name, model in self.models.items():
            if model.device is not None and model.device not in {pool.device for pool in self.pool.values()}:
                raise ValueError(f"models.{name}.device is '{model.device}'; no pool has it (set pool.<name>.device)")
            if model.pool not in self.pool:
                known = ", ".join(sorted(self.pool))
                raise ValueError(f"models.{name}.pool is '{model.pool}'; expected one of: {known}")
        return self

    def pool_of(self, model: ModelSettings) -> str:
        """Return the name of the pool that holds `model`."""
        if model.device is None or self.pool[model.pool].device == model.device:
            return model.pool
        return next(name for name, pool in self.pool.items() if pool.device == model.device)
