"""Words to token ids without a vocabulary file: both ends compute the same ids from the same options.

The rule, for anyone who writes it again in another language:
1. The text is normalised to NFKC and lower-cased.
2. A word is a longest run of letters, digits and underscores (Unicode, Python's ``\\w``); any other character that is
   not white space is a word by itself.
3. A word's id is ``1 + (h mod (vocab_size - 1))``, h = the 8 bytes of BLAKE2b (digest_size=8, no key) of the word in
   UTF-8, read as a big-endian number. 0 is padding.
4. The first L ids are kept; shorter texts are filled with 0 at the end.

Different words can share an id: with n words in use about n / (2 vocab_size) of them do.
"""

import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

PADDING = 0
_WORD = re.compile(r"\w+|[^\w\s]")


def words(text: str) -> list[str]:
    """Return the words of a text, lower-cased, punctuation marks one by one."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


@functools.lru_cache(maxsize=65_536)
def word_id(word: str, vocab_size: int) -> int:
    """Return the id of one word: 1 .. vocab_size - 1."""
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "big") % (vocab_size - 1)


@dataclass(frozen=True)
class HashingTokenizer:
    """Texts to arrays of L token ids.

    Args:
        vocab_size: the architecture's option of that name, at least 2.
        length: L, the one edge of task.input.shape.

    Raises:
        ValueError: sizes too small to hold a word.
    """

    vocab_size: int
    length: int

    def __post_init__(self) -> None:
        if self.vocab_size < 2:
            raise ValueError(f"vocab_size is {self.vocab_size}; give at least 2: the padding and one word")
        if self.length < 1:
            raise ValueError(f"length is {self.length}; give at least 1")

    def encode(self, text: str) -> npt.NDArray[np.int64]:
        """Return the ids of one text, int64 [L]."""
        ids = np.full(self.length, PADDING, dtype=np.int64)
        found = [word_id(word, self.vocab_size) for word in words(text)[: self.length]]
        ids[: len(found)] = found
        return ids

    def encode_all(self, texts: Iterable[str]) -> npt.NDArray[np.int64]:
        """Return the ids of several texts, int64 [N, L]."""
        rows = [self.encode(text) for text in texts]
        return np.stack(rows) if rows else np.zeros((0, self.length), dtype=np.int64)
