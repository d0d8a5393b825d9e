"""How the worker's log is set up, in a process of its own: importing its module reads the settings."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import logging
from worker import app

logger, handler = logging.Logger("any"), logging.StreamHandler()
handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
logger.addHandler(handler)
app._as_the_api_does(logger)
logger.info("not wanted")
logger.handle(logging.makeLogRecord({"msg": "here", "levelno": 30, "created": 1_767_225_600.25, "msecs": 250.0}))
"""


def test_it_tells_utc_from_the_level_of_the_setting_up(tmp_path: Path) -> None:
    env = os.environ | {"POTSTILL_LOG_LEVEL": "warning", "POTSTILL_HOME": str(tmp_path), "TZ": "Asia/Tokyo"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
    assert done.stderr == "2026-01-01 00:00:00.250Z here\n"


def test_lines_are_objects_where_the_setting_says_so(tmp_path: Path) -> None:
    env = os.environ | {"POTSTILL_LOG_FORMAT": "json", "POTSTILL_LOG_LEVEL": "warning", "POTSTILL_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stderr)["message"] == "here"
