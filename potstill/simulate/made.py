"""Small data sets of every kind of task: scikit-learn's, and others that a seed makes. Measurements take them, too."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from potstill.samples import Samples

EDGE, LENGTH, PADDING, NO_TOKEN = 16, 16, 0, -100
NOISE = 0.5
FIGURES = (1, 2, 3, 4)
"""Classes of `shapes`: disc, square, cross, ring; 0 is what lies behind."""
TOPICS, WORDS, FOLLOWERS = 5, 60, (0.6, 0.3, 0.1)
"""Of `sentences`: words that a word is followed by, and how often; their perplexity is exp(0.898) = 2.45."""
_SHARED = 2  # of three words, as many are followed by the same ones in every topic
_SENTENCES = (6, 14)  # of a document: at least, and below


def digit_pairs(rng: np.random.Generator) -> Samples:
    """Return scikit-learn's digits two side by side, [1797, 1, 8, 16], with 0 or 1 for each digit [1797, 10].

    Strata are the digit on the left; `rng` draws the one on the right.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, other = (digits.images / 16).astype(np.float32), rng.permutation(len(digits.target))
    labels = np.zeros((len(images), 10), np.uint8)
    labels[np.arange(len(images)), digits.target] = 1
    labels[np.arange(len(images)), digits.target[other]] = 1
    inputs = np.concatenate([images, images[other]], axis=2)[:, None]
    return Samples(inputs, labels, strata=digits.target.astype(np.int64))


def diabetes() -> Samples:
    """Return scikit-learn's 442 patients, ten columns and how far the disease went [442, 1], both of deviation 1."""
    from sklearn.datasets import load_diabetes

    found = load_diabetes()
    inputs = (found.data / found.data.std(0)).astype(np.float32)
    values = ((found.target - found.target.mean()) / found.target.std()).astype(np.float32)[:, None]
    return Samples(inputs, values)


def shapes(rng: np.random.Generator, count: int, kinds: tuple[int, ...] = FIGURES) -> Samples:
    """Return images [N, 1, 16, 16] of one figure each under noise, and the classes of their pixels; strata are figures.

    Every figure is as bright as the next: its form alone tells which it is.
    """
    rows, columns = np.mgrid[:EDGE, :EDGE]
    labels, strata = np.zeros((count, EDGE, EDGE), np.uint8), np.zeros(count, np.int64)
    for number, label in enumerate(labels):
        top, left, edge = rng.integers(4, 12), rng.integers(4, 12), rng.integers(2, 5)
        strata[number] = kind = rng.choice(kinds)
        label[_inside(int(kind), rows - top, columns - left, int(edge))] = kind
    noise = rng.normal(0, NOISE, labels.shape)
    return Samples(((labels > 0) + noise).astype(np.float32)[:, None], labels, strata=strata)


def _inside(kind: int, down: NDArray[Any], right: NDArray[Any], edge: int) -> NDArray[np.bool_]:
    """Return which pixels, so far from the middle, a figure of half an edge covers."""
    far, square = np.hypot(down, right), np.maximum(abs(down), abs(right)) <= edge
    covered: dict[int, NDArray[np.bool_]] = {
        1: far <= edge,
        2: square,
        3: square & ((down == 0) | (right == 0)),
        4: (far <= edge) & (far > edge - 1),
    }
    return covered[kind]


def sentences(rng: np.random.Generator, documents: int) -> Samples:
    """Return token ids [N, 16] of sentences, with the next token of each place [N, 16].

    Users are the documents, 6 to 13 sentences each; strata are their topics. A word is followed by one of three. Which
    three they are is the same in all topics for two words of three, and each topic's own for the third.
    """
    followers = np.stack([_followers(rng)] * TOPICS)  # [topics, words, 3]
    for topic in followers:
        topic[_SHARED :: _SHARED + 1] = _followers(rng)[_SHARED :: _SHARED + 1]
    ids, users, topics = list[NDArray[np.int64]](), list[str](), list[int]()
    for number in range(documents):
        topic = number % TOPICS
        for _ in range(rng.integers(*_SENTENCES)):
            ids.append(_sentence(followers[topic], rng))
            users.append(f"document-{number:04}")
            topics.append(topic)
    inputs = np.stack(ids)
    return Samples(inputs, next_tokens(inputs), np.array(users), np.array(topics))


def _followers(rng: np.random.Generator) -> NDArray[np.int64]:
    return np.stack([1 + rng.permutation(WORDS)[: len(FOLLOWERS)] for _ in range(WORDS)])


def _sentence(followers: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    words = np.full(LENGTH, PADDING, np.int64)
    words[0] = rng.integers(1, WORDS + 1)
    for place in range(1, rng.integers(LENGTH // 2, LENGTH + 1)):
        words[place] = rng.choice(followers[words[place - 1] - 1], p=FOLLOWERS)
    return words


def next_tokens(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return labels [N, L] of token ids [N, L]: the token that follows, -100 where none does."""
    following = np.full_like(ids, PADDING)
    following[:, :-1] = ids[:, 1:]
    return np.where(following == PADDING, NO_TOKEN, following)
