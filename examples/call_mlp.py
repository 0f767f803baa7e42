"""Calls the network of train_mlp.py in three ways: plain HTTP, Triton's client, and a gRPC client of four fields.

    pip install "tritonclient[http]" grpcio grpcio-tools
    python examples/call_mlp.py [--http 127.0.0.1:8000] [--grpc 127.0.0.1:8001]

It prints the probabilities of the four quarters for one point of each, one line a client.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request
from pathlib import Path

import grpc
import numpy as np
import tritonclient.http as triton

POINTS = [[-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [0.5, 0.5]]


def plain_http(address: str) -> list[float]:
    """Call with nothing but the standard library."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(POINTS), 2], "data": POINTS}
    request = urllib.request.Request(  # the address is the caller's
        f"http://{address}/v2/models/mlp/infer", json.dumps({"inputs": [tensor]}).encode()
    )
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
        return list(json.load(response)["outputs"][0]["data"])


def tritons_client(address: str) -> list[float]:
    """Call with tritonclient, which sends tensors in binary."""
    client = triton.InferenceServerClient(address)
    tensor = triton.InferInput("x", [len(POINTS), 2], "FP32")
    tensor.set_data_from_numpy(np.array(POINTS, np.float32))
    response = client.infer("mlp", [tensor])
    return list(response.as_numpy(response.get_response()["outputs"][0]["name"]).ravel())


def four_fields(address: str) -> list[float]:
    """Call ModelService.Predict with the messages of predict.proto beside this file."""
    sys.path.insert(0, str(Path(__file__).parent))
    messages, services = grpc.protos_and_services("predict.proto")
    with grpc.insecure_channel(address) as channel:
        stub = services.ModelServiceStub(channel)
        points = [side for point in POINTS for side in point]
        response = stub.Predict(messages.PredictRequest(input_data=points, shape=[len(POINTS), 2], model_name="mlp"))
        return list(response.output_data)


def main() -> None:
    """Call and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--http", default="127.0.0.1:8000")
    parser.add_argument("--grpc", default="127.0.0.1:8001")
    options = parser.parse_args()
    for name, answer in (
        ("plain HTTP", plain_http(options.http)),
        ("tritonclient", tritons_client(options.http)),
        ("ModelService", four_fields(options.grpc)),
    ):
        print(f"{name}: {' '.join(f'{value:.4f}' for value in answer)}")


if __name__ == "__main__":
    main()
