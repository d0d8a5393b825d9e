"""Start a program that dies with its parent: ``python -S launch.py PARENT_PID program argument...``.

Linux only has the signal for it (PR_SET_PDEATHSIG, kept across exec); elsewhere the program is just started. A
separate small program instead of Popen's ``preexec_fn``, which may deadlock in a process that has threads.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for SIGTERM at the parent's death, then become the program."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before we asked
            sys.exit(1)
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
