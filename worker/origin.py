"""Where a job's result comes from: its description with digests in place of paths, the seeds, the code, the machine.

The description is all that a job is told, so whoever has these blobs and this code makes the same bytes again.
"""

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from contract import __version__, packages
from contract.seeds import noted_seeds, noting_seeds
from worker.specs import Handover, JobResult, JobSpec

_HEX = re.compile(r"[0-9a-f]{64}")
_LIBRARIES = ("numpy", "torch", "safetensors", "ml_dtypes")
_PACKAGES = ("contract", "worker")


def traced(spec: JobSpec, device: str, work: Callable[[], JobResult]) -> JobResult:
    """Do a job's work and note in its result where it comes from.

    Args:
        spec: what the job is told.
        device: torch device of the work.
        work: does it, in this thread.
    """
    with noting_seeds():
        result = work()
        return result.model_copy(update={"origin": _origin(spec, device)})


def traced_handover(spec: JobSpec, device: str, made: Handover) -> Handover:
    """Note in what a job hands over where it comes from; called within its work, see `traced`."""
    return made.model_copy(update={"origin": _origin(spec, device)})


def _origin(spec: JobSpec, device: str) -> dict[str, Any]:
    return {
        "spec": with_digests(spec),
        "seeds": [list(path) for path in noted_seeds()],
        "code": code(),
        "environment": environment(device),
    }


def with_digests(spec: JobSpec) -> dict[str, Any]:
    """Return a job's description as JSON holds it, a blob's digest in place of its path and without the output folder,
    what devices revealed to unmask a sum, and what other jobs have worked out of the rest.

    A file that is no blob, as in a simulation, is named as it is.
    """
    tree = spec.model_dump(exclude={"output_dir": True, "secure": {"groups"}, "shards": True, "round": {"output_dir"}})
    return {name: to_jsonable_python(_digests(value)) for name, value in tree.items()}


def _digests(value: Any) -> Any:
    if isinstance(value, Path):
        return f"sha256-{value.name}" if _HEX.fullmatch(value.name) else str(value)
    if isinstance(value, dict):
        return {key: _digests(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_digests(item) for item in value]
    return value


@lru_cache(maxsize=1)
def code() -> dict[str, Any]:
    """Return which code this is: the package's version, a digest of what computes, the commit where one is known."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        root = Path(str(files(package)))
        for path in sorted(root.rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{package}/{path.relative_to(root).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return {"version": __version__, "commit": _commit(), "digest": f"sha256-{digest.hexdigest()}"}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return POTSTILL_COMMIT, which an image's build may set, or the clone's commit; None where neither is known."""
    named = os.environ.get("POTSTILL_COMMIT")
    root = Path(str(files("worker"))).parent
    if named or not (root / ".git").exists():
        return named or None
    try:
        told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.strip() or None


@lru_cache(maxsize=1)
def _installed() -> dict[str, Any]:
    return {"libraries": {name: _version(name) for name in _LIBRARIES}, "plugins": packages.versions()}


def environment(device: str) -> dict[str, Any]:
    """Return what sums depend on beside the code: libraries, device, threads; without loading torch for it."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        **_installed(),
        "device": device,
        "device_name": None,
        "threads": None,
        "deterministic": True,
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        found["threads"] = torch.get_num_threads()
        found["deterministic"] = torch.are_deterministic_algorithms_enabled()
        if device.startswith("cuda"):
            found["device_name"] = torch.cuda.get_device_name(device)
    return found
