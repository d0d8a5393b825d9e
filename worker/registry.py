"""Who carries out what a recipe chooses: one function or class a choice, by decoration.

``@implements(parts.FuseMedian)`` above a function says that it is the median. What such a function is given and returns
is the same for all choices of a slot, and said where the slot is asked: `fusing.fuse` asks for fuse rules.
"""

from typing import Any

from contract.choices import Implementations

implements: Implementations[Any] = Implementations("worker")
