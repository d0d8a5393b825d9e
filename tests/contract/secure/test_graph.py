"""Who masks with whom: complete for few, sparse and even for many, the same from everywhere."""

from fractions import Fraction

import pytest

from contract.secure import graph


def _keys(count: int, salt: int = 0) -> dict[str, bytes]:
    return {f"device-{number:04}": bytes([salt]) + number.to_bytes(31, "big") for number in range(count)}


def test_few_devices_mask_with_everybody() -> None:
    found = graph.build(_keys(5), 2 / 3)
    assert all(set(found.holders(name)) == set(found.members) for name in found.members)
    assert found.quorum == found.threshold("device-0000") == 4  # of 5: 3.3, rounded up
    assert [found.point(name) for name in found.members] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("count", "share", "wanted"), [(2, 0.5, 2), (3, 2 / 3, 2), (4, 0.5, 3), (6, 2 / 3, 4), (10, 2 / 3, 7), (10, 1, 10)]
)
def test_it_takes_more_than_half(count: int, share: float, wanted: int) -> None:
    assert graph.least(count, share) == wanted


def test_many_devices_mask_with_some_by_a_ring_in_an_order_of_their_keys() -> None:
    found = graph.build(_keys(150), 2 / 3)
    assert graph.neighbours(150) < 149
    for name in found.members:
        assert len(found.adjacent[name]) == graph.neighbours(150)
        assert name not in found.adjacent[name]
        assert all(name in found.adjacent[other] for other in found.adjacent[name])
        assert 2 * found.threshold(name) > len(found.holders(name))
    assert found == graph.build(dict(reversed(_keys(150).items())), 2 / 3)
    assert found.adjacent != graph.build(_keys(150, salt=1), 2 / 3).adjacent


def test_the_tail_of_a_small_draw_by_hand() -> None:
    """Two of five are marked; of two drawn at least one is: 1 - (3/5)(2/4) = 7/10."""
    assert graph._tail(5, 2, 2, 1) == Fraction(7, 10)


def test_a_sparse_graph_is_as_safe_as_it_says() -> None:
    """More devices need more neighbours, but slowly; the sizes next to the chosen one would not do."""
    degrees = [graph.neighbours(count) for count in (65, 100, 200, 500, 1000)]
    assert degrees == sorted(degrees) and degrees[-1] < 120
    less = degrees[-1] - 2
    betrayed = graph._tail(999, 200, less, less // 2 + 1)
    lost = graph._tail(999, 200, less, less + 1 - less // 2)
    assert betrayed >= Fraction(1, 2**graph.SECURITY_BITS) or lost >= Fraction(1, 2**graph.FAILURE_BITS)
