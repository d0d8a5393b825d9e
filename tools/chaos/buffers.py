"""Rounds that do not wait, in the storm: who is in which buffer is a matter of haste, so no two federations are equal.

What must be true instead: each acknowledged update is in one buffer, no buffer has more than it takes, and replay makes
each model again of its buffer's updates, bit for bit.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

from sqlalchemy import select

from service.domain.buffered import Work
from service.persistence.tables import ClientRow, UpdateRow
from tools.chaos.reading import reading
from tools.deployment import NAMES, ROOT, Deployment

SIZE = 2
MOST = len(NAMES)
"""A buffer that is full while the one before is fused takes what comes meanwhile: one update of each device at most."""
PLAN = {"mode": "buffered", "buffer": SIZE, "max_staleness": 100}


def count(deployment: Deployment, id_: str, devices: Any) -> list[str]:
    """Return what is wrong with a federation's buffers and models."""
    operator, faults = deployment.operator, list[str]()
    rounds = [operator.round(each.id) for each in operator.rounds(id_).items]
    for each in rounds:
        given = [person for person in each.participants if person.answered_at is not None]
        total = sum(person.weight or 0 for person in given)
        if each.state == "published" and not (SIZE <= len(given) <= MOST and abs(total - 1) < 1e-9):
            faults.append(f"buffer {each.index} was published of {len(given)} updates with weights of {total}")
    with reading(deployment) as session:
        columns = (UpdateRow.begun_in, UpdateRow.turn, ClientRow.name)
        rows = select(*columns).join(ClientRow, ClientRow.id == UpdateRow.client_id)
        theirs = session.execute(rows.where(UpdateRow.round_id.in_([each.id for each in rounds])))
        kept = Counter((str(Work(begun, turn)), name) for begun, turn, name in theirs)
    if kept != devices.taken:
        faults.append(f"acknowledged {dict(devices.taken)} but kept {dict(kept)}")
    return faults + _replayed(deployment, operator.federation(id_).name)


def _replayed(deployment: Deployment, name: str) -> list[str]:
    command = [sys.executable, "-m", "potstill", "replay", "--all", name, "--json"]
    env = os.environ | deployment.env
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return [f"{name} cannot be replayed: {done.stderr[-500:]}"]
    return [] if done.returncode == 0 else [f"{name} is not what replay makes of it: {json.dumps(found)[:1000]}"]
