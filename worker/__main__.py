"""`python -m worker`: Celery's command line for our worker.

`celery -A worker.app` is the same, but looks for that module in the current folder first.
"""

import sys

from service.infra import foreign


def main() -> int:
    """Run the command line; return its exit code."""
    foreign.forget()  # before Celery reads them
    from worker.app import app

    return int(app.start(sys.argv[1:]) or 0)


if __name__ == "__main__":
    sys.exit(main())
