"""What a person sees, and does not see."""

import io
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from client_sdk import progress as module
from client_sdk.errors import UsageError
from client_sdk.progress import Progress, Wanted
from client_sdk.reports import Report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rounds(progress: Progress) -> None:
    with progress.bar("ward-7 round 1/3", 2) as done:
        done(1, 0.5)
        done(2, 0.25)
    progress.say("waiting: two more clients")
    progress.say("waiting: two more clients")


@pytest.mark.parametrize("wanted", [True, "bar"])
def test_a_bar_and_lines_go_to_a_terminal(wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    rounds(Progress(wanted))
    shown = terminal.getvalue()
    assert "ward-7 round 1/3" in shown and "2/2" in shown and "loss 0.2500" in shown
    assert shown.count("waiting: two more clients") == 1


@pytest.mark.parametrize("wanted", [True, "log"])
def test_where_nobody_looks_lines_are_logged_and_no_bar_is_drawn(
    wanted: Wanted, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "client_sdk"):
        rounds(Progress(wanted))
    assert capsys.readouterr() == ("", "")
    assert caplog.messages == ["ward-7 round 1/3: epoch 2/2, loss 0.2500", "waiting: two more clients"]


def test_lines_of_a_long_training_are_some_seconds_apart(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    with (
        caplog.at_level(logging.INFO, "client_sdk"),
        Progress("log").reports("own", 1) as told,
    ):
        for step in range(1, 25):
            now = float(step)
            told(Report(step, 24, 0.5, {}))
    steps = [int(line.split("step ")[1].split("/")[0]) for line in caplog.messages]
    assert steps == [10, 20, 24]


def test_lines_go_to_stderr_where_no_log_is_set_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "logger", logging.Logger("of nobody"))
    rounds(Progress(True))
    assert capsys.readouterr().err.splitlines() == [
        "ward-7 round 1/3: epoch 2/2, loss 0.2500",
        "waiting: two more clients",
    ]


def test_a_kernel_shows_bars_though_its_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel: Any = SimpleNamespace(get_ipython=lambda: SimpleNamespace(config={"IPKernelApp": {}}))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    monkeypatch.setattr("tqdm.notebook.IProgress", None)
    rounds(Progress(True))
    assert "2/2" in stream.getvalue(), "a bar of letters without ipywidgets"


def test_nothing_is_shown_without_progress_and_lines_are_logged(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    progress = Progress(False)
    with caplog.at_level(logging.INFO, "client_sdk"), progress.bar("round", 1) as done:
        done(1, 0.5)
        progress.say("waiting")
    assert capsys.readouterr() == ("", "")
    assert caplog.messages == ["waiting"]


def test_another_word_is_refused() -> None:
    with pytest.raises(UsageError, match="progress: 'bars' is unknown"):
        Progress("bars")  # type: ignore[arg-type]
