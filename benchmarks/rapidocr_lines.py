"""What RapidOCR reads, for ``accuracy.py``, which runs this file with the interpreter of RapidOCR's own environment.

    python rapidocr_lines.py SAMPLES PACK_FOLDER RUNS

RapidOCR runs as it is shipped, on OpenVINO, with the weights of the pack. The last line printed is the results as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rapidocr import EngineType, RapidOCR

from sample_runs import measured


def main(samples: Path, folder: Path, runs: int) -> None:
    """Read every sample and print what came of it."""
    parameters = {"Global.log_level": "critical", "Rec.rec_keys_path": str(folder / "dictionary.txt")}
    for section, role in (("Det", "detection"), ("Cls", "orientation"), ("Rec", "recognition")):
        parameters[f"{section}.engine_type"] = EngineType.OPENVINO
        parameters[f"{section}.model_path"] = str(folder / f"{role}.onnx")
    engine = RapidOCR(params=parameters)
    print(json.dumps(measured(lambda file: list(engine(str(file)).txts or ()), samples, runs)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
