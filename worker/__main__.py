"""`python -m worker`: Celery's command line for our worker; `python -m worker alone`: one that needs no Celery.

`celery -A worker.app` is the same as the first, but looks for that module in the current folder first.
"""

import sys

from service.infra import foreign


def main() -> int:
    """Run the command line; return its exit code."""
    foreign.forget()  # before Celery reads them
    if sys.argv[1:] == ["alone"]:
        from worker import alone

        return alone.main()
    from worker.app import app

    return int(app.start(sys.argv[1:]) or 0)


if __name__ == "__main__":
    sys.exit(main())
