"""What a team writes without a server like ours: a gRPC servicer on `ThreadPoolExecutor(10)`, Python lists in and out.

python -m benchmarks.plain_servicer PORT

Its model is the same echo: the floats become an array, the array becomes the answer.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
from benchmarks.tensor_client import GRPC_OPTIONS

from paddlewheel.grpc.protos import model_service_pb2


def predict(request: Any, _: grpc.ServicerContext) -> Any:
    """Echo."""
    began = time.perf_counter()
    array = np.array(request.input_data, dtype=np.float32).reshape(request.shape)
    return model_service_pb2.PredictResponse(
        output_data=array.flatten().tolist(),
        output_shape=array.shape,
        inference_time_ms=(time.perf_counter() - began) * 1000,
        success=True,
    )


def main(port: int) -> None:
    """Serve until the process is ended."""
    server = grpc.server(ThreadPoolExecutor(10), options=GRPC_OPTIONS)
    handler = grpc.unary_unary_rpc_method_handler(
        predict,
        request_deserializer=model_service_pb2.PredictRequest.FromString,
        response_serializer=model_service_pb2.PredictResponse.SerializeToString,
    )
    service = grpc.method_handlers_generic_handler("paddle_inference.ModelService", {"Predict": handler})
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(int(sys.argv[1]))
