"""What the errors of files and folders mean to whoever waits for them."""

import errno

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""There is no room."""
UNUSABLE = frozenset({
    errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV,
    errno.ELOOP, errno.ESTALE,
})  # fmt: skip
"""A folder was taken away or may not be written, a disk fails: whoever runs the machine must see to it."""
