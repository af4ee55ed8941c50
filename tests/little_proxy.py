"""A little HTTP proxy on this machine: it forwards, it tunnels, and says what it was asked."""

import socket
import socketserver
import threading
from collections.abc import Callable
from typing import Self, cast
from urllib.parse import urlsplit

HEAD = b"\r\n\r\n"


class LittleProxy:
    """
    A proxy that knows where names are that nobody else knows.

    Attributes:
        places: The port on this machine by the name of a host.
        asked: The first line of each request.
        password: What `Proxy-Authorization` has to say, if anything.
        refuses: The status with which it refuses everything, if it does.
    """

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.asked: list[str] = []
        self.password = ""
        self.refuses = ""
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        cast("_Owned", self._server).proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def address(self) -> str:
        """Where it is."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Owned(socketserver.ThreadingTCPServer):
    proxy: LittleProxy


class _Handler(socketserver.BaseRequestHandler):
    """One connection: a tunnel, or one request that is forwarded."""

    def handle(self) -> None:
        """Do what is asked."""
        proxy = cast("_Owned", self.server).proxy
        client: socket.socket = self.request
        head, body = _read_head(client)
        if not head:
            return
        first, *lines = head.decode().split("\r\n")
        method, target, _ = first.split(" ")
        proxy.asked.append(f"{method} {target}")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        status = proxy.refuses
        if proxy.password and headers.get("proxy-authorization") != proxy.password:
            status = "407 Proxy Authentication Required"
        if status:
            client.sendall(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
            return
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        with socket.create_connection(("127.0.0.1", proxy.places[url.hostname or ""])) as server:
            if method == "CONNECT":
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                _tunnel(client, server)
            else:
                while len(body) < int(headers.get("content-length", "0")):
                    body += client.recv(65536)
                kept = [line for line in lines if not line.lower().startswith(_OURS)]
                line = f"{method} {url.path} HTTP/1.1"
                whole = "\r\n".join([line, *kept, "connection: close"])
                server.sendall(whole.encode() + HEAD + body)
                _copy(server, client)


_OURS = ("connection:", "proxy-")


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    read = b""
    while HEAD not in read:
        chunk = client.recv(65536)
        if not chunk:
            return b"", b""
        read += chunk
    head, _, body = read.partition(HEAD)
    return head, body


def _tunnel(client: socket.socket, server: socket.socket) -> None:
    back = threading.Thread(target=_copy, args=(server, client), daemon=True)
    back.start()
    _copy(client, server)
    back.join(10)


def _copy(source: socket.socket, to: socket.socket) -> None:
    """Copy what one says to the other, to its end."""
    ending: Callable[[int], None] = to.shutdown
    try:
        while chunk := source.recv(65536):
            to.sendall(chunk)
        ending(socket.SHUT_WR)
    except OSError:
        return
