"""The way of a request: nothing of this machine goes by a proxy, and variables that are wrong are one sentence."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from client_sdk import Client, OperatorClient
from client_sdk.connection import Connection, check_private
from client_sdk.errors import TransportError, UsageError
from client_sdk.network import proxy_for
from contract.hosts import is_this_machine

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir", "sslkeylogfile")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("POTSTILL_CA_FILE", raising=False)


class Listener:
    """Takes connections, answers all alike, and remembers what it was asked."""

    def __init__(self, answer: bytes):
        self._answer, self.seen = answer, list[bytes]()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self.seen.append(connection.recv(65536))
                connection.sendall(self._answer)

    def close(self) -> None:
        self._socket.close()


def _answer(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.fixture
def service() -> Iterator[Listener]:
    found = Listener(_answer("200 OK", b'{"status": "ok", "version": "0"}'))
    yield found
    found.close()


@pytest.fixture
def proxy() -> Iterator[Listener]:
    found = Listener(_answer("502 Bad Gateway", b""))
    yield found
    found.close()


@pytest.mark.parametrize("client", [Client, OperatorClient])
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_service_on_this_machine_is_never_asked_by_a_proxy(
    client: type[Client], variable: str, service: Listener, proxy: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
    with client(f"http://127.0.0.1:{service.port}", "pst_op_secret", retries=0) as one:
        assert one.health().version == "0"
    assert proxy.seen == []
    assert b"pst_op_secret" in service.seen[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:1080"),
        ("ALL_PROXY", "nonsense://x"),
        ("HTTP_PROXY", "http://[::1"),
        ("HTTP_PROXY", "http://h:port"),
        ("NO_PROXY", "localhost,127.0.0.1,fd07:b51a:cc66:f0::/64"),
        ("NO_PROXY", "localhost,[::1]"),
        ("NO_PROXY", "http://[,:,::::,*."),
        ("SSL_CERT_FILE", "/opt/conda/gone.pem"),
        ("SSL_CERT_DIR", "/opt/conda/gone"),
        ("SSLKEYLOGFILE", "/nowhere/keys"),
        ("REQUESTS_CA_BUNDLE", "/opt/conda/gone.pem"),
        ("CURL_CA_BUNDLE", "/opt/conda/gone.pem"),
    ],
)
def test_for_this_machine_no_such_variable_matters(
    name: str, value: str, service: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    if name == "NO_PROXY":
        monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    with Client(f"http://127.0.0.1:{service.port}", retries=0) as one:
        assert one.health().version == "0"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (
            "ALL_PROXY",
            "socks5://127.0.0.1:1080",
            r"ALL_PROXY=socks5://127\.0\.0\.1:1080: .*'httpx\[socks\]'",
        ),
        ("all_proxy", "socks4://127.0.0.1:1080", r"all_proxy=socks4://127\.0\.0\.1:1080: expected .*NO_PROXY"),
        ("HTTPS_PROXY", "http://h:port", r"HTTPS_PROXY=http://h:port: expected .*add far\.example to NO_PROXY"),
        ("HTTPS_PROXY", "http://[::1", r"HTTPS_PROXY=http://\[::1: expected"),
        ("HTTPS_PROXY", "http://", r"HTTPS_PROXY=http://: expected"),
        ("SSL_CERT_FILE", "/opt/conda/gone.pem", r"SSL_CERT_FILE: /opt/conda/gone\.pem cannot be read as PEM"),
        ("SSL_CERT_DIR", "/opt/conda/gone", r"SSL_CERT_DIR: /opt/conda/gone is no folder"),
        ("POTSTILL_CA_FILE", "/gone.pem", r"POTSTILL_CA_FILE: /gone\.pem cannot be read as PEM"),
        ("SSLKEYLOGFILE", "/nowhere/keys", r"SSLKEYLOGFILE: /nowhere/keys cannot be written"),
    ],
)
def test_for_another_machine_a_variable_that_is_wrong_is_named(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=says):
        Client("https://far.example")


def test_a_password_of_a_proxy_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://anna:hidden@127.0.0.1:1080")
    with pytest.raises(UsageError, match="NO_PROXY") as raised:
        Client("https://far.example")
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("no_proxy", "url", "by_proxy"),
    [
        ("", "https://far.example", True),
        ("far.example", "https://far.example", False),
        ("example", "https://far.example", False),
        (".example", "https://far.example", False),
        ("*.example", "https://far.example", False),
        ("ar.example", "https://far.example", True),
        ("far.example:443", "https://far.example", False),
        ("far.example:8443", "https://far.example", True),
        ("https://far.example", "https://far.example", False),
        ("*", "https://far.example", False),
        ("10.0.0.0/8", "https://10.1.2.3", False),
        ("10.0.0.0/8", "https://11.1.2.3", True),
        ("fd07:b51a::/32", "https://[fd07:b51a::7]", False),
        ("[fd07::1]", "https://[fd07::1]", False),
        ("fd07::1", "https://[fd07::1]:8443", False),
        ("a b,far.example", "https://far.example", False),
    ],
)
def test_no_proxy_knows_names_addresses_and_networks(
    no_proxy: str, url: str, by_proxy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert (proxy_for(httpx.URL(url)) is not None) is by_proxy


def test_another_machine_is_asked_by_the_proxy_and_what_fails_names_it(
    proxy: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    named = rf"HTTPS_PROXY=http://127\.0\.0\.1:{proxy.port}"
    with Client("https://far.example", "pst_secret", retries=0) as one, pytest.raises(TransportError, match=named):
        one.health()
    assert proxy.seen[0].startswith(b"CONNECT far.example:443")
    assert b"pst_secret" not in proxy.seen[0]


def test_plain_http_by_a_proxy_is_one_more_reader(proxy: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
    with pytest.raises(UsageError, match=r"HTTP_PROXY=.*add 10\.0\.0\.9 to NO_PROXY"):
        Client("http://10.0.0.9", "pst_secret", insecure_http=True)
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    Client("http://10.0.0.9", "pst_secret", insecure_http=True).close()
    check_private(httpx.URL("http://127.0.0.1"), False)
    assert proxy.seen == []


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        *((host, True) for host in ("localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.9.9.9", "::1")),
        *((host, True) for host in ("::ffff:127.0.0.1", "0.0.0.0", "::")),
        *((host, False) for host in ("localhost.example", "10.0.0.1", "::ffff:10.0.0.1", "far.example", "")),
    ],
)
def test_this_machine(host: str, inside: bool) -> None:
    assert is_this_machine(host) is inside


@pytest.mark.parametrize("url", ["http://[::1", "http://h:port", "ftp://h", "http://", "127.0.0.1:8080"])
def test_an_address_that_is_none_is_a_sentence(url: str) -> None:
    with pytest.raises(UsageError, match=r"url: expected an address such as http://127\.0\.0\.1:8080"):
        Connection(url).base()


def test_certificates_of_a_file_are_read_when_they_are_needed(tmp_path: Path, service: Listener) -> None:
    with Client(f"http://127.0.0.1:{service.port}", ca_file=tmp_path / "gone.pem", retries=0) as one:
        assert one.health().version == "0"
    with pytest.raises(UsageError, match=r"ca_file: .*gone\.pem cannot be read as PEM"):
        Client("https://127.0.0.1", ca_file=tmp_path / "gone.pem")
