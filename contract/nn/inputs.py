"""What a network reads, checked before it is built: messages name the field of the task that does not fit."""

from contract.wire.federations import Task


def require_float_input(name: str, task: Task) -> None:
    """Refuse token ids, which a network that multiplies its input cannot read.

    Raises:
        ValueError: the task's input is not float32.
    """
    if task.input.is_tokens:
        raise ValueError(
            f"architecture {name!r} reads float32 input, not {task.input.dtype} token ids; "
            "set task.input.dtype to 'float32' or choose a text network such as 'lstm'"
        )


def image_shape(name: str, task: Task, least: int = 1) -> tuple[int, int, int]:
    """Return (channels, height, width) of the task's images.

    Args:
        least: the smallest height and width, in pixels, that the network's strides leave something of.

    Raises:
        ValueError: the input is not float32 or not such an image.
    """
    require_float_input(name, task)
    if len(task.input.shape) != 3:
        raise ValueError(
            f"architecture {name!r} reads images [channels, height, width]; task.input.shape is {task.input.shape}. "
            "Give three edges, such as [1, 8, 8], or choose an MLP"
        )
    channels, height, width = task.input.shape
    if min(height, width) < least:
        raise ValueError(
            f"architecture {name!r} needs images of at least {least}x{least}; task.input.shape is {task.input.shape}. "
            "Enlarge the images or choose a smaller network"
        )
    return channels, height, width


def token_length(name: str, task: Task) -> int:
    """Return L, the number of token ids of one sample.

    Raises:
        ValueError: the input is not int64 ids of shape [L].
    """
    if not task.input.is_tokens:
        raise ValueError(
            f"architecture {name!r} reads int64 token ids, not {task.input.dtype}; set task.input.dtype to 'int64'"
        )
    if len(task.input.shape) != 1:
        raise ValueError(
            f"architecture {name!r} reads token ids [L]; task.input.shape is {task.input.shape}. Give one edge, "
            "the length that texts are cut and padded to"
        )
    return task.input.shape[0]
