"""The state machines of federations, rounds and jobs: tables, and the one function that reads them."""

from service.domain.errors import DomainError

Table = dict[str, dict[str, str]]

LIVE = (
    "created",
    "preparing",
    "training_generator",
    "collecting_discriminators",
    "scoring",
    "running",
    "paused",
)

FEDERATION: Table = {
    "start": {"created": "preparing"},
    "train_generator": {"preparing": "training_generator"},
    "collect": dict.fromkeys(("preparing", "training_generator"), "collecting_discriminators"),
    "score": {"collecting_discriminators": "scoring"},
    "recollect": {"scoring": "collecting_discriminators"},
    "run": dict.fromkeys(("preparing", "training_generator", "collecting_discriminators", "scoring"), "running"),
    "pause": {"running": "paused"},
    "resume": {"paused": "running"},
    "finish": {"running": "finished"},
    "cancel": dict.fromkeys(LIVE, "cancelled"),
    "fail": dict.fromkeys(LIVE, "failed"),
    "revive": {"failed": "preparing"},
    "revive_generator": {"failed": "training_generator"},
    "revive_scoring": {"failed": "scoring"},
}

ROUND: Table = {
    "aggregate": {"collecting": "aggregating"},
    "skip": {"collecting": "skipped"},
    "reject": {"aggregating": "skipped"},
    "publish": {"aggregating": "published"},
    "fail": {"aggregating": "failed", "collecting": "failed"},
    "retry": {"failed": "aggregating"},
    "reopen": {"aggregating": "collecting"},
}
"""`reopen`: the file of an update was lost, and its client is asked again.

`reject` is the gate's: the new model is not published, and the next round opens from the one before."""

JOB: Table = {
    "claim": {"queued": "running", "running": "running"},
    "release": {"running": "queued"},
    "finish": {"running": "done"},
    "fail": {"running": "failed"},
    "cancel": {"queued": "cancelled", "running": "cancelled"},
    "retry": {"failed": "queued", "cancelled": "queued"},
}


def advance(table: Table, state: str, event: str, what: str) -> str:
    """Return the state after `event`.

    Raises:
        DomainError: invalid-transition, naming the state.
    """
    try:
        return table[event][state]
    except KeyError:
        allowed = ", ".join(sorted(table[event]))
        raise DomainError(
            "invalid-transition", f"cannot {event} a {what} that is {state}; it must be {allowed}", state=state
        ) from None
