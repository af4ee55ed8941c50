"""Servers that are reached through a proxy, as the environment says."""

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from ferrule import Executor, FerruleError, Outcome, Registry, ToolCall
from ferrule.mcp import connect
from ferrule.mcp._proxies import Proxies, of_environment
from little_proxy import LittleProxy
from mcp_lab import Lab

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Async generator")]

Serve = Callable[..., Any]
NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "request_method")
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
SECRET = "s3cret"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what the environment of the tests says."""
    for name in (*NAMES, *map(str.upper, NAMES), *CERTIFICATES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def proxy() -> Iterator[LittleProxy]:
    """Give a proxy."""
    with LittleProxy() as running:
        yield running


def lab() -> Starlette:
    """Return a lab that is served under any name."""
    anything = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    return Lab().server.streamable_http_app(transport_security=anything)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Make a certificate of `mcp.test`, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mcp.test")])
    now = dt.datetime.now(tz=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("mcp.test")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file = tmp_path / "mcp.test.pem"
    file.write_bytes(made.public_bytes(Encoding.PEM) + private)
    return file


async def add(target: object) -> Outcome:
    """Connect, and run one call."""
    async with Registry([connect(target)]) as registry:
        [outcome] = await Executor(registry).run([ToolCall.of("add", {"a": 1, "b": 2})])
    return outcome


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_server_is_reached_through_the_proxy(
    name: str, serve: Serve, proxy: LittleProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MCP-1: by a name that the proxy alone knows; the scheme of the proxy may be left out."""
    proxy.places["mcp.test"] = serve(lab).port
    monkeypatch.setenv(name, proxy.address if name == "HTTP_PROXY" else f"http://{proxy.address}")

    assert (await add("http://mcp.test/mcp")).text == "3"
    assert set(proxy.asked) == {"POST http://mcp.test/mcp"}


async def test_what_is_secret_goes_through_a_tunnel(
    serve: Serve, proxy: LittleProxy, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MCP-1: over TLS the proxy hears a name and a port; a private authority is believed."""
    proxy.places["mcp.test"] = serve(lab, certificate=certificate).port
    monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with pytest.raises(FerruleError, match=r"certificate.*through the proxy 127\.0\.0\.1"):
        await add("https://mcp.test/mcp")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    assert (await add("https://mcp.test/mcp")).text == "3"
    assert set(proxy.asked) == {"CONNECT mcp.test:443"}


async def test_the_servers_of_a_file_are_reached_so_too(
    serve: Serve, proxy: LittleProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MCP-1: each as its own name says."""
    server = serve(lab)
    proxy.places["mcp.test"] = server.port
    monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.address}")
    file = tmp_path / "mcp.json"
    servers = {"far": {"url": "http://mcp.test/mcp"}, "near": {"url": server.url}}
    file.write_text(json.dumps({"mcpServers": servers}))
    async with Registry([connect(file, prefix="{server}")]) as registry:
        calls = [ToolCall.of(f"{name}__add", {"a": 1, "b": 2}) for name in ("far", "near")]
        outcomes = await Executor(registry).run(calls)

    assert [outcome.text for outcome in outcomes] == ["3", "3"]
    assert set(proxy.asked) == {"POST http://mcp.test/mcp"}


async def test_this_machine_is_reached_without_a_proxy(
    serve: Serve, proxy: LittleProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SE-01: what is meant to stay here is shown to nobody, whatever is set."""
    server = serve(lab)
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{proxy.address}")

    assert (await add(server.url)).text == "3"
    assert (await add(server.url.replace("127.0.0.1", "localhost"))).text == "3"
    assert proxy.asked == []


async def test_who_we_are_to_the_proxy_is_told_to_it_alone(
    serve: Serve, proxy: LittleProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SE-07: a name and a password in its URL; a wrong one is refused, and in no error."""
    proxy.places["mcp.test"] = serve(lab).port
    proxy.password = "Basic " + base64.b64encode(f"ann:{SECRET}".encode()).decode()
    monkeypatch.setenv("HTTP_PROXY", f"http://ann:{SECRET}@{proxy.address}")
    assert (await add("http://mcp.test/mcp")).text == "3"

    proxy.password = "Basic none"
    with pytest.raises(FerruleError, match="HTTP 407") as refused:
        await add("http://mcp.test/mcp")
    assert SECRET not in str(refused.value)


async def test_a_proxy_that_refuses_or_is_not_there_is_named(
    proxy: LittleProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MC-08: without its password; the server was certainly not asked."""
    proxy.refuses = "403 Not here"
    monkeypatch.setenv("HTTPS_PROXY", f"http://ann:{SECRET}@{proxy.address}")
    monkeypatch.setenv("HTTP_PROXY", f"http://ann:{SECRET}@127.0.0.1:1")
    with pytest.raises(
        FerruleError, match=f"the proxy {proxy.address} refused: 403 Not here"
    ) as no:
        await add("https://mcp.test/mcp")
    with pytest.raises(FerruleError, match=r"through the proxy 127\.0\.0\.1:1\)") as none:
        await add("http://mcp.test/mcp")

    assert SECRET not in f"{no.value} {none.value}"


async def test_a_call_that_the_proxy_kept_back_did_not_run(
    serve: Serve, proxy: LittleProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MC-09, FAIL-6: 407 is a refusal; of a bad gateway nobody knows whether the call ran."""
    proxy.places["mcp.test"] = serve(lab).port
    monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.address}")
    async with Registry([connect("http://mcp.test/mcp")]) as registry:
        executor = Executor(registry)
        call = ToolCall.of("add", {"a": 1, "b": 2})
        endings = []
        for status in ("407 Proxy Authentication Required", "502 Bad Gateway", ""):
            proxy.refuses = status
            [outcome] = await executor.run([call])
            endings.append((type(outcome).__name__, outcome.text))

    assert endings[0] == (
        "Failed",
        "Error: the server did not run the call: it answered with HTTP 407",
    )
    assert endings[1][0] == "Unknown"
    assert endings[2] == ("Completed", "3")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HTTP_PROXY", f"ftp://ann:{SECRET}@proxy.test", "names is none: it is a URL of http"),
        ("HTTP_PROXY", f"http://ann:{SECRET}@", "names is none: it is a URL of http"),
        (
            "ALL_PROXY",
            f"http://ann:{SECRET}@proxy.test:port",
            "names is none: it is a URL of http",
        ),
        ("ALL_PROXY", f"socks5://ann:{SECRET}@proxy.test", "pip install socksio"),
        ("SSL_CERT_FILE", "/none/of/these.pem", "SSL_CERT_FILE or SSL_CERT_DIR names cannot be"),
    ],
)
async def test_an_environment_that_is_nonsense_is_said_so(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STYLE 24: what would be right, and nothing of what may be secret."""
    monkeypatch.setenv(name, value)
    with pytest.raises(FerruleError, match=said) as refused:
        await add("http://mcp.test/mcp")

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("exempt", "host", "is_exempt"),
    [
        ("", "mcp.test", False),
        ("*", "mcp.test", True),
        ("other.test, mcp.test", "mcp.test", True),
        ("MCP.test", "mcp.TEST", True),
        ("mcp.test.", "mcp.test", False),
        ("mcp.test", "mcp.test.", True),
        ("test", "mcp.test", True),
        (".mcp.test", "a.mcp.test", True),
        (".mcp.test", "mcp.test", True),
        ("*.mcp.test", "a.b.mcp.test", True),
        ("mcp.test", "notmcp.test", False),
        ("mcp.test:8080", "mcp.test", True),
        ("mcp.test:8081", "mcp.test", False),
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.0.0/16", "10.2.2.3", False),
        ("10.1.2.3:8080", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.30", False),
        ("fd00::/8", "fd00::1", True),
        ("[fd00::1]", "[fd00::1]", True),
        ("[fd00::1]:8081", "fd00::1", False),
        (",,", "mcp.test", False),
        ("10.1.0.0/99", "10.1.2.3", False),
    ],
)
def test_what_goes_through_no_proxy(
    exempt: str, host: str, is_exempt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MCP-1: names with all below them, addresses, ranges of them, ports."""
    monkeypatch.setenv("HTTP_PROXY", "proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", exempt)

    found = of_environment().of("http", host, 8080)
    assert found == (None if is_exempt else "http://proxy.test:3128")


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.9.9.9", "0.0.0.0"),
        *("::1", "[::1]", "::ffff:127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1"),
    ],
)
def test_what_is_this_machine(host: str) -> None:
    """SE-01: by whichever of its names."""
    assert Proxies({"all": "http://proxy.test"}).of("http", host, 80) is None


def test_which_proxy_a_scheme_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """MCP-1: its own before that of all; none if it is empty; a client's header is no proxy."""
    monkeypatch.setenv("https_proxy", "http://small.test:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://large.test:1")
    monkeypatch.setenv("ALL_PROXY", "http://all.test:1")
    found = of_environment()
    assert found.of("https", "mcp.test", 443) == "http://small.test:1"
    assert found.of("http", "mcp.test", 80) == "http://all.test:1"

    monkeypatch.setenv("HTTP_PROXY", "http://header.test:1")
    monkeypatch.setenv("REQUEST_METHOD", "GET")
    assert of_environment().of("http", "mcp.test", 80) == "http://all.test:1"
    monkeypatch.delenv("ALL_PROXY")
    assert of_environment().of("http", "mcp.test", 80) is None
