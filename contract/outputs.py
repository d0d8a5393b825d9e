"""Files that appear whole under their names: written beside their place, and put there by a rename."""

import errno
from pathlib import Path


def check_place(target: Path) -> None:
    """Refuse a place where there is something that is no file: a device, a pipe, a folder.

    A rename would put the file in its place: whoever may write beside /dev/null would have a file there from then on,
    and so would everybody else.

    Raises:
        FileExistsError: with the remedy.
    """
    if target.exists() and not target.is_file():
        raise FileExistsError(errno.EEXIST, "is no file that could be written anew; name another place", str(target))
