"""Trains a small network with Paddle in a few seconds and puts it into a model repository.

    python examples/train_mlp.py models            # models/mlp/1/inference.json (PIR, what Paddle 3 writes)
    FLAGS_enable_pir_api=0 python examples/train_mlp.py models --version 2     # inference.pdmodel, as before
    paddlewheel serve --model-repository models

It learns which quarter of the plane a point lies in: `x` [rows, 2] in, the probabilities of the four quarters out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import paddle

STEPS = 200


def points(count: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return random points of the plane and their quarters."""
    x = paddle.uniform((count, 2), min=-1.0, max=1.0)
    return x, (x[:, 0] > 0).astype("int64") + 2 * (x[:, 1] > 0).astype("int64")


def main() -> None:
    """Train, print the accuracy, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--version", default="1")
    options = parser.parse_args()

    paddle.seed(0)
    network = paddle.nn.Sequential(paddle.nn.Linear(2, 32), paddle.nn.ReLU(), paddle.nn.Linear(32, 4))
    optimizer = paddle.optimizer.Adam(0.02, parameters=network.parameters())
    for _ in range(STEPS):
        x, quarter = points(256)
        loss = paddle.nn.functional.cross_entropy(network(x), quarter)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
    x, quarter = points(10_000)
    accuracy = (network(x).argmax(axis=1) == quarter).astype("float32").mean()

    network = paddle.nn.Sequential(network, paddle.nn.Softmax())
    network.eval()
    target = options.repository / "mlp" / options.version / "inference"
    paddle.jit.save(network, str(target), input_spec=[paddle.static.InputSpec([None, 2], "float32", "x")])
    print(f"{float(accuracy):.1%} right; saved to {target.parent}")


if __name__ == "__main__":
    main()
