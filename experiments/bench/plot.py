"""Both sides of a part's figures as bars, each as a multiple of the other side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from experiments.bench.table import number

_OURS, _OTHER = "#1f77b4", "#7f7f7f"


def draw(path: Path, part: str, figures: Sequence[dict[str, Any]]) -> str:
    """Draw the figures of a part, the other side as 1; return the link from the page.

    Args:
        path: file to make.
        part: whose they are.
        figures: as `Figure.document` gives them.
    """
    figure, axis = plt.subplots(figsize=(8, 0.62 * len(figures) + 1.2), layout="constrained")
    for place, each in enumerate(figures):
        share = each["ours"] / each["other"]
        axis.barh(place - 0.19, share, 0.36, color=_OURS, label="ours" if place == 0 else None)
        axis.barh(place + 0.19, 1.0, 0.36, color=_OTHER, label="other" if place == 0 else None)
        for offset, value, width in ((-0.19, each["ours"], share), (0.19, each["other"], 1.0)):
            axis.text(width, place + offset, f" {number(value)} {each['unit']}", va="center", fontsize=7)
    names = [f"{each['what']}\n({each['against']})" for each in figures]
    axis.set_yticks(range(len(figures)), names, fontsize=7)
    axis.invert_yaxis()
    axis.margins(x=0.18)
    axis.set_xlabel("multiple of the other side; of rates (…/s) longer is better, of all else shorter", fontsize=8)
    axis.set_title(part, loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return f"{path.parent.name}/{path.name}"
