"""One device of the demo: a process that knows its own images and the service's address, nothing else.

``python -m potstill.demo.device --config device-3.json``; the file is a `DeviceConfig`.
"""

import argparse
import logging
import sys
import time
from pathlib import Path

from pydantic import BaseModel


class Membership(BaseModel):
    """One federation to take part in."""

    federation: str
    join_token: str


class DeviceConfig(BaseModel):
    """What a device is told at its start."""

    name: str
    url: str
    data: Path
    state_dir: Path
    log: Path
    federations: list[Membership]
    threads: int = 1


def take_part(config: DeviceConfig) -> None:
    """Train in one federation after the other until each is over."""
    import torch

    from client_sdk import train_and_push

    torch.set_num_threads(config.threads)
    log = logging.getLogger("device")
    for membership in config.federations:
        start = time.monotonic()
        report = train_and_push(
            config.url,
            config.data,
            federation=membership.federation,
            join_token=membership.join_token,
            name=config.name,
            device="cpu",
            state_dir=config.state_dir / membership.federation,
            progress=False,
            on_round=lambda done: log.info("%s", done),
        )
        log.info(
            "%s: %s after %.1f s, %d updates taken",
            membership.federation,
            report.state,
            time.monotonic() - start,
            report.rounds_trained,
        )


def main() -> None:
    """Read the configuration and take part; a failure is logged with its traceback and ends with exit code 1."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    config = DeviceConfig.model_validate_json(parser.parse_args().config.read_text(encoding="utf-8"))
    config.log.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=config.log, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        take_part(config)
    except Exception:
        logging.getLogger("device").exception("%s gives up", config.name)
        sys.exit(1)


if __name__ == "__main__":
    main()
