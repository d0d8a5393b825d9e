"""TLS as `potstill up` serves it, with a certificate of an authority of our own; and who is refused without."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from client_sdk import Client, OperatorClient, TransportError, UsageError
from client_sdk.errors import UntrustedCertificate
from potstill.console import CliError
from potstill.up import check_private, programs
from service.config import Settings
from service.operations.access.tokens import ensure_operator_token
from service.persistence import migrate
from tools.deployment import ROOT, wait_for


class Served:
    """One API process with TLS."""

    def __init__(self, folder: Path):
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        self.ca, cert, key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        certificate.private_key_pem.write_to_path(str(key))
        for part in certificate.cert_chain_pems:
            part.write_to_path(str(cert), append=True)
        settings = Settings(home=folder / "home", tls_cert=cert, tls_key=key)
        migrate.upgrade(settings)
        self.token = ensure_operator_token(settings) or ""
        self.listener = socket.create_server(("0.0.0.0", 0))  # for a name that its certificate lacks, too
        self.port = self.listener.getsockname()[1]
        self.url = f"https://localhost:{self.port}"
        api, _ = programs(self.listener, settings)
        env = os.environ | {"POTSTILL_HOME": str(settings.home), "PYTHONPATH": str(ROOT)}
        with open(folder / "api.log", "wb") as log:
            self.process = subprocess.Popen(
                api.argv, cwd=ROOT, env=env, pass_fds=api.pass_fds, stdout=log, stderr=log, start_new_session=True
            )
        wait_for(self._answers, why="the API does not answer over TLS")

    def _answers(self) -> bool:
        try:
            with Client(self.url, ca_file=self.ca, retries=0, timeout=5) as client:
                return client.health().status == "ok"
        except TransportError:
            return False

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.listener.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("tls"))
    yield made
    made.close()


def test_the_sdk_speaks_tls_with_an_authority_of_ones_own(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with OperatorClient(served.url, served.token, ca_file=served.ca, retries=0) as client:
        made = client.create_token("ann", valid_seconds=3600)
        assert [item.name for item in client.each(client.tokens)] == ["first operator", "ann"]
    monkeypatch.setenv("POTSTILL_CA_FILE", str(served.ca))
    with OperatorClient(served.url, made.token, retries=0) as client:
        assert client.own_token().name == "ann"


def test_a_certificate_that_nobody_vouches_for_is_refused_and_nothing_is_sent(served: Served, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    for ca_file in (None, other):
        with (
            OperatorClient(served.url, served.token, ca_file=ca_file, retries=30) as client,  # each of which would wait
            pytest.raises(UntrustedCertificate, match="POTSTILL_CA_FILE"),
        ):
            client.tokens()
    wrong_name = f"https://127.0.0.2:{served.port}"
    with Client(wrong_name, ca_file=served.ca, retries=0) as client, pytest.raises(UntrustedCertificate):
        client.health()
    (tmp_path / "none.pem").write_text("nothing")
    with pytest.raises(UsageError, match="ca_file"):
        Client(served.url, ca_file=tmp_path / "none.pem")


def test_answers_say_to_stay_with_tls_and_nothing_of_the_server(served: Served) -> None:
    import ssl

    answer = httpx.get(f"{served.url}/docs", verify=ssl.create_default_context(cafile=str(served.ca)))
    assert answer.headers["strict-transport-security"].startswith("max-age=")
    assert "server" not in answer.headers


def test_plain_http_at_the_tls_port_gets_no_answer(served: Served) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://localhost:{served.port}/healthz", timeout=10)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "host.example"])
def test_up_refuses_an_address_of_the_network_without_tls(host: str, tmp_path: Path) -> None:
    with pytest.raises(CliError, match="--tls-cert"):
        check_private(Settings(home=tmp_path), host)
    check_private(Settings(home=tmp_path, insecure_http=True), host)
    check_private(Settings(home=tmp_path, trusted_proxies="10.0.0.1"), host)
    check_private(Settings(home=tmp_path, tls_cert="a", tls_key="b"), host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_up_serves_this_machine_without(host: str, tmp_path: Path) -> None:
    check_private(Settings(home=tmp_path), host)


@pytest.mark.parametrize("url", ["http://192.0.2.1:8080", "http://potstill.example", "http://localhost.evil.example"])
def test_the_sdk_sends_no_token_in_the_clear_to_another_machine(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POTSTILL_INSECURE_HTTP", raising=False)
    with pytest.raises(UsageError, match="insecure_http"):
        OperatorClient(url, "pst_op_1")
    OperatorClient(url, "pst_op_1", insecure_http=True).close()
    monkeypatch.setenv("POTSTILL_INSECURE_HTTP", "1")
    OperatorClient(url, "pst_op_1").close()
    with pytest.raises(UsageError, match="insecure_http"):
        OperatorClient(url, "pst_op_1", insecure_http=False)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "http://a.localhost:1"])
def test_the_sdk_talks_to_this_machine_without(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POTSTILL_INSECURE_HTTP", raising=False)
    client: Any = OperatorClient(url, "pst_op_1")
    client.close()
