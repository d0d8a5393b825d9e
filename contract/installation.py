"""How a person installs what is missing, be it from a clone or from a wheel."""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from contract.programs import ROOT

_WHEELS = ("potstill", "potstill-device")


def install(*extras: str) -> str:
    """Return the command that adds extras of ours, such as ``client``, to this installation.

    A wheel is named by its file: of its name there may be something else on a package index.
    """
    if (ROOT / "pyproject.toml").exists():
        return f"pip install '.[{','.join(extras)}]' in the clone"
    for name in _WHEELS:
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        if Path(str(found.locate_file(""))).resolve() != ROOT:
            continue
        offered = [extra for extra in extras if extra in found.metadata.get_all("Provides-Extra", [])]
        wheel = f"{name.replace('-', '_')}-{found.version}-py3-none-any.whl"
        asked = f"[{','.join(offered)}]" if offered else ""
        return f"pip install './{wheel}{asked}' where the wheel is"
    return f"install Potstill with its extras {', '.join(extras)}"
