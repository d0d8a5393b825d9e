"""The machine that a bench ran on, in neutral words: what explains a figure, and nothing that names the machine."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

import contract


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def description() -> dict[str, Any]:
    """Return it for JSON; `load` is how many processes wanted a core over the last minute, before the bench began."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "potstill": contract.__version__,
        "load": round(os.getloadavg()[0], 1),
    }


def sentence(said: dict[str, Any]) -> str:
    """Return it as a sentence."""
    return (
        f"{said['cores']} cores ({said['processor']}), {said['memory_gb']} GB, {said['system']}; "
        f"Python {said['python']}, torch {said['torch']}, numpy {said['numpy']}; load {said['load']} when it began."
    )
