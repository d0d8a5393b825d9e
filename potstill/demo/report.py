"""What the demo leaves: a table, a plot, the numbers."""

import csv
import json
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from potstill.demo.experiment import Outcome

COLOURS = ("#7f7f7f", "#1f77b4", "#d62728", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf")


def table_rows(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows: accuracy per round in percent, mean, last three."""
    rounds = max(len(outcome.accuracies) for outcome in outcomes)
    heading = ["method", *(str(index) for index in range(1, rounds + 1)), "mean", "last 3"]
    rows = []
    for outcome in outcomes:
        cells = [f"{100 * accuracy:.1f}" for accuracy in outcome.accuracies]
        cells += [""] * (rounds - len(cells))
        rows.append([outcome.label, *cells, f"{100 * outcome.mean:.1f}", f"{100 * outcome.last_three:.1f}"])
    return heading, rows


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the table in Markdown."""
    heading, rows = table_rows(outcomes)
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def plot(outcomes: Sequence[Outcome], path: Path, title: str) -> None:
    """Draw accuracy per round, a line a method, each with its mean in the legend."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    for outcome, colour in zip(outcomes, cycle(COLOURS), strict=False):
        rounds = range(1, len(outcome.accuracies) + 1)
        percent = [100 * accuracy for accuracy in outcome.accuracies]
        label = f"{outcome.label}  (mean {100 * outcome.mean:.1f})"
        axes.plot(rounds, percent, marker="o", markersize=4, linewidth=2, color=colour, label=label)
    axes.set(xlabel="round", ylabel="test accuracy (%)", ylim=(0, 100))
    axes.set_title(title, loc="left", fontsize=11)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def write(outcomes: Sequence[Outcome], folder: Path, title: str, facts: dict[str, Any]) -> None:
    """Write accuracy.png, table.md, accuracy.csv and results.json."""
    folder.mkdir(parents=True, exist_ok=True)
    plot(outcomes, folder / "accuracy.png", title)
    (folder / "table.md").write_text(
        f"# {title}\n\nTest accuracy in percent after each round.\n\n{markdown(outcomes)}", encoding="utf-8"
    )
    with (folder / "accuracy.csv").open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["method", "seed", "round", "accuracy"])
        for outcome in outcomes:
            for index, accuracy in enumerate(outcome.accuracies, 1):
                writer.writerow([outcome.method, outcome.seed, index, f"{accuracy:.6f}"])
    results = {**facts, "outcomes": [outcome.as_dict() for outcome in outcomes]}
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
