"""What this machine's CPU can do, for engines that do not say it themselves."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


@cache
def has_native_bf16() -> bool:
    """Return whether the CPU computes in bf16 itself, as Linux tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return not _BF16_FLAGS.isdisjoint(flags.partition(":")[2].split())
