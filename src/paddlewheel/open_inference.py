"""What the Open Inference Protocol says of the server and its models, as plain data; both of its edges send it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from paddlewheel import __version__
from paddlewheel.batching import Duration, VersionStatistics
from paddlewheel.inference import TensorSpec
from paddlewheel.repository import IndexEntry, ModelDescription

EXTENSIONS: Final = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "statistics",
)


def server_body() -> dict[str, Any]:
    """Return the metadata of the server."""
    return {"name": "paddlewheel", "version": __version__, "extensions": list(EXTENSIONS)}


def model_body(description: ModelDescription) -> dict[str, Any]:
    """Return the metadata of a model."""
    return {
        "name": description.name,
        "versions": list(description.versions),
        "platform": description.platform,
        "inputs": [_spec_body(spec) for spec in description.signature.inputs],
        "outputs": [_spec_body(spec) for spec in description.signature.outputs],
    }


def index_body(entries: Sequence[IndexEntry], *, only_ready: bool) -> list[dict[str, Any]]:
    """Return how each version stands, or each that can be called."""
    return [
        {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
        for entry in entries
        if entry.state == "READY" or not only_ready
    ]


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
