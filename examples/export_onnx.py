"""Turns a network that Paddle saved, in its new or its old form, into ONNX (`pip install paddle2onnx`).

python examples/train_mlp.py models
python examples/export_onnx.py models/mlp/1 models/mlp-onnx/1
"""

from __future__ import annotations

import argparse
from pathlib import Path

import paddle2onnx


def main() -> None:
    """Export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder with inference.json or .pdmodel, and .pdiparams")
    parser.add_argument("target", type=Path, help="folder for model.onnx")
    options = parser.parse_args()
    options.target.mkdir(parents=True, exist_ok=True)
    target = options.target / "model.onnx"
    network = next(each for suffix in ("json", "pdmodel") if (each := options.source / f"inference.{suffix}").exists())
    weights = options.source / "inference.pdiparams"
    # Its optimizers install packages by themselves; ONNX Runtime optimizes when it loads.
    paddle2onnx.export(str(network), str(weights), str(target), opset_version=13, optimize_tool="None")
    print(f"exported to {target}")


if __name__ == "__main__":
    main()
