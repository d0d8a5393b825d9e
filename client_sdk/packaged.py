"""What the code of other packages does wrong on a device, as the SDK tells it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from client_sdk.errors import PackageFailed
from contract.choices import Choice
from contract.guard import theirs
from contract.packages import PluginFault


@contextmanager
def told(choice: Choice) -> Iterator[None]:
    """Run what carries out a choice; a fault of its package's code ends the round, and names the package.

    Raises:
        PackageFailed: from what it raised; what the machine lacks is raised as it is.
    """
    try:
        with theirs(choice):
            yield
    except PluginFault as error:
        cause = error.__cause__
        full = isinstance(cause, OSError) and cause.errno == errno.ENOSPC
        if cause is not None and (full or isinstance(cause, MemoryError | torch.OutOfMemoryError)):
            raise cause from None
        raise PackageFailed(f"{error}. Nothing was uploaded") from error
