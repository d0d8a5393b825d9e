from collections.abc import Iterator

import pytest

from tests.bucket_server import BucketServer, serve


@pytest.fixture(scope="module")
def bucket_server() -> Iterator[BucketServer]:
    pytest.importorskip("boto3")
    pytest.importorskip("moto")
    with serve() as running:
        yield running
