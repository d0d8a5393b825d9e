"""Headers of safetensors blobs that are asked for again and again: each update is held against its round's model."""

import threading
from collections import OrderedDict
from collections.abc import Callable

from contract.tensors import Header

_KEPT, _LARGEST = 16, 10_000


class Headers:
    """Headers that were asked for last, by digest, which names the same for ever; none of so many tensors that memory
    would show it. Any thread may call it.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Header] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, digest: str, read: Callable[[], Header]) -> Header:
        """Return a blob's header, which `read` gives where it is not known."""
        with self._lock:
            known = self._kept.get(digest)
            if known is not None:
                self._kept.move_to_end(digest)
                return known
        found = read()
        if len(found.tensors) > _LARGEST:
            return found
        with self._lock:
            self._kept[digest] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found
