"""What a person sees, and does not see."""

import logging

import pytest

from client_sdk.progress import Progress


def test_a_bar_and_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(True)
    with progress.bar("ward-7 round 1/3", 2) as done:
        done(1, 0.5)
        done(2, 0.25)
    progress.say("waiting: two more clients")
    progress.say("waiting: two more clients")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "ward-7 round 1/3" in shown.err and "2/2" in shown.err and "loss 0.2500" in shown.err
    assert shown.err.count("waiting: two more clients") == 1


def test_nothing_is_shown_without_progress_and_lines_are_logged(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    progress = Progress(False)
    with caplog.at_level(logging.INFO, "client_sdk"), progress.bar("round", 1) as done:
        done(1, 0.5)
        progress.say("waiting")
    assert capsys.readouterr() == ("", "")
    assert caplog.messages == ["waiting"]
