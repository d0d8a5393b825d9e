"""Connections: half of them for one address at most, and never more than there are files to open."""

import ipaddress
import resource
import subprocess
import sys

import pytest

from service.infra.connections import ConnectionLimits, open_files


def test_an_address_has_its_share_and_a_proxy_is_not_an_address() -> None:
    limits = ConnectionLimits(together=6, each=2, free=(ipaddress.ip_network("10.0.0.0/8"),))
    stranger, neighbour, proxy = "2001:db8:1:2::9", "2001:db8:1:2::a", "::ffff:10.1.2.3"
    assert [limits.enter(place) for place in (stranger, neighbour, stranger)] == [True, True, False]
    assert [limits.enter(proxy) for _ in range(3)] == [True] * 3
    assert not limits.enter("192.0.2.1"), "there are no more"
    for place in (stranger, neighbour, stranger, proxy, proxy, proxy, "192.0.2.1"):
        limits.leave(place)
    assert limits.enter("192.0.2.1")
    limits.leave("192.0.2.1")
    assert limits.enter("")
    limits.leave("")
    assert not limits._open


@pytest.mark.parametrize(("wanted", "found"), [(300, 300), (10_000, 400), (100, 200)])
def test_the_limit_of_open_files_is_raised_as_far_as_it_may(wanted: int, found: int) -> None:
    code = f"from service.infra.connections import open_files; print(open_files({wanted}))"
    low = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 400)); {code}"
    done = subprocess.run([sys.executable, "-c", low], capture_output=True, text=True, check=True)
    assert int(done.stdout) == found


def test_a_limit_that_is_high_enough_stays() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert open_files(10) >= 10
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
