"""Was this process forked from one that may have used torch? Its threads are not there, and who waits for them hangs.

torch spreads large operations over a pool of threads that a fork does not copy. With one thread there is none to wait
for.
"""

import multiprocessing
import os

_loaded_by = os.getpid()


def is_forked() -> bool:
    """Whether this process is a fork: of one that had loaded the SDK, or made by `multiprocessing` in that way."""
    if os.getpid() != _loaded_by:
        return True
    if multiprocessing.parent_process() is None:
        return False
    own = getattr(multiprocessing.current_process(), "_start_method", None)
    return (own or multiprocessing.get_context().get_start_method()) == "fork"
