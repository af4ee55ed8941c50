"""
A small payment server for `refunds.py`: it books refunds, and gets into trouble when it is told to.

- `POST /refunds` with an order, an amount and an `Idempotency-Key`: books it, once for each key.
- `GET /ledger`: what was asked and what was booked, a line for each key.
- `POST /trouble` with an order, what and when: its next refund is held, or kills the server, before
  or after it is booked.
- `POST /held`: answers once a refund is held.
- `POST /release`: lets them go on that are held, and answers when they are through.

The ledger is a file of SQLite, so it survives the server. The server ends when its standard input
does: whoever started it cannot leave it behind.
"""

import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, TextIO, TypeAlias, cast

Trouble: TypeAlias = Literal["hold", "die"]
When: TypeAlias = Literal["before", "after"]

SECONDS = 60.0
"""How long somebody waits for an answer of the server."""


class Refusal(Exception):
    """The server does not book this; the sentence says why."""


# ---- the ledger ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """
    What the server knows of one idempotency key.

    Attributes:
        key: The key.
        order: What it was asked to refund.
        amount: How much, in euro.
        requests: How often it was asked.
        bookings: How often it booked that.
    """

    key: str
    order: str
    amount: int
    requests: int
    bookings: int


class Ledger:
    """
    What was asked and what was booked, in a file.

    Args:
        path: The file.
        forgets: Whether it books again what it has booked under the same key: for those who want
            to see what the keys are good for.
    """

    def __init__(self, path: Path, *, forgets: bool = False) -> None:
        self._forgets = forgets
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False)
        with self._connection as connection:
            for table in ("requests", "bookings"):
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {table} "
                    "(id INTEGER PRIMARY KEY, key TEXT, customer_order TEXT, amount INTEGER)"
                )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def note(self, key: str, order: str, amount: int) -> None:
        """Note that somebody asks."""
        with self._lock, self._connection:
            self._insert("requests", key, order, amount)

    def book(self, key: str, order: str, amount: int) -> int:
        """
        Book a refund, unless it is booked; return the number of the booking.

        Raises:
            Refusal: under this key another refund is booked.
        """
        with self._lock, self._connection:
            known = self._connection.execute(
                "SELECT id, customer_order, amount FROM bookings WHERE key = ?", (key,)
            ).fetchone()
            if known is None or self._forgets:
                return self._insert("bookings", key, order, amount)
            if known[1:] != (order, amount):
                raise Refusal("under this key another refund is booked")
            return int(known[0])

    def lines(self) -> list[Line]:
        """Return a line for each key, by order."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT key, customer_order, amount, count(*), (SELECT count(*) FROM bookings b "
                "WHERE b.key = r.key) FROM requests r GROUP BY key ORDER BY customer_order"
            ).fetchall()
        return [Line(*row) for row in rows]

    def _insert(self, table: str, key: str, order: str, amount: int) -> int:
        made = self._connection.execute(
            f"INSERT INTO {table} (key, customer_order, amount) VALUES (?, ?, ?)",  # noqa: S608  # ours
            (key, order, amount),
        )
        return made.lastrowid or 0


# ---- trouble -------------------------------------------------------------------------------------


class Troubles:
    """What happens to whom, once; and who is held meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[tuple[str, str], str] = {}
        self._held = 0
        self._rounds = 0

    def make(self, order: str, what: str, when: str) -> None:
        """Have the next refund of an order get into trouble."""
        with self._changed:
            self._due[order, when] = what

    def meet(self, order: str, when: When) -> bool:
        """Get into the trouble that is due here, if any; say whether one was held, and goes on."""
        with self._changed:
            what = self._due.pop((order, when), None)
            if what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "hold":
                until = self._rounds + 1
                self._held += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._rounds >= until)
            return what == "hold"

    def through(self, held: int) -> None:
        """Say that a request is through that was held so often."""
        with self._changed:
            self._held -= held
            self._changed.notify_all()

    def until_held(self) -> None:
        """Wait until a request is held."""
        with self._changed:
            self._changed.wait_for(lambda: self._held)

    def release(self) -> None:
        """Let those go on that are held; return when they are through."""
        with self._changed:
            self._rounds += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._held)


# ---- the server ----------------------------------------------------------------------------------


class Payments(ThreadingHTTPServer):
    """The server: a ledger and its troubles behind a port of 127.0.0.1 that is free."""

    daemon_threads = True

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ledger = ledger
        self.troubles = Troubles()

    def refund(self, key: str, order: str, amount: int) -> dict[str, object]:
        """Book a refund, through all the trouble that is due."""
        held = 0
        try:
            self.ledger.note(key, order, amount)
            held += self.troubles.meet(order, "before")
            booking = self.ledger.book(key, order, amount)
            held += self.troubles.meet(order, "after")
            return {"booking": booking}
        finally:
            self.troubles.through(held)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    @property
    def payments(self) -> Payments:
        """The server that was asked."""
        return cast("Payments", self.server)

    def do_GET(self) -> None:
        """Answer with the ledger."""
        self._answer(lambda: {"lines": [asdict(line) for line in self.payments.ledger.lines()]})

    def do_POST(self) -> None:
        """Do what is asked."""
        troubles = self.payments.troubles
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        asked: dict[str, Callable[[], object]] = {
            "/refunds": lambda: self._refund(body),
            "/trouble": lambda: troubles.make(body["order"], body["what"], body["when"]),
            "/held": troubles.until_held,
            "/release": troubles.release,
        }
        self._answer(asked[self.path])

    def _refund(self, body: dict[str, Any]) -> dict[str, object]:
        key, order, amount = self.headers.get("Idempotency-Key"), body["order"], body["amount"]
        if not key:
            raise Refusal("a refund has an Idempotency-Key")
        if not amount > 0:
            raise Refusal("a refund is of more than nothing")
        return self.payments.refund(key, order, amount)

    def _answer(self, asked: Callable[[], object]) -> None:
        status, said = HTTPStatus.OK, None
        try:
            said = asked()
        except Refusal as refusal:
            status, said = HTTPStatus.UNPROCESSABLE_ENTITY, {"why": str(refusal)}
        text = json.dumps(said or {}).encode()
        with suppress(ConnectionError):  # Whoever asked may be gone: killed meanwhile.
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # http.server's
        """Log nothing."""


def main(ledger: Path, *, forgets: bool) -> None:
    """Say the port, and serve until standard input ends."""
    with closing(Ledger(ledger, forgets=forgets)) as opened, Payments(opened) as server:
        print(server.server_port, flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()


# ---- from outside --------------------------------------------------------------------------------


def ask(
    port: int, method: str, path: str, body: object = None, *, key: str | None = None
) -> tuple[int, dict[str, Any]]:
    """
    Ask the server; return the status and what it said.

    Raises:
        OSError: it did not answer; it may have done what it was asked to.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        headers = {} if key is None else {"Idempotency-Key": key}
        connection.request(method, path, json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


class Served:
    """
    The server, as whoever started it sees it.

    Attributes:
        port: Where it listens.
        process: Its process.
    """

    def __init__(self, port: int, process: "subprocess.Popen[str]") -> None:
        self.port = port
        self.process = process

    def make_trouble(self, order: str, what: Trouble, when: When) -> None:
        """Have the next refund of an order get into trouble."""
        ask(self.port, "POST", "/trouble", {"order": order, "what": what, "when": when})

    def until_held(self) -> None:
        """Wait until a request is held."""
        ask(self.port, "POST", "/held")

    def release(self) -> None:
        """Let those requests go on that are held; return when they are through."""
        ask(self.port, "POST", "/release")

    def ledger(self) -> list[Line]:
        """Return what was asked and what was booked."""
        return [Line(**line) for line in ask(self.port, "GET", "/ledger")[1]["lines"]]


@contextmanager
def serving(ledger: Path, *, forgets: bool = False) -> Generator[Served]:
    """Start the server as a process of its own; it ends with the block."""
    command = [sys.executable, __file__, str(ledger), *["forgets"] * forgets]
    with subprocess.Popen(  # noqa: S603  # our own program
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Served(int(cast("TextIO", process.stdout).readline()), process)
        finally:
            process.kill()


if __name__ == "__main__":
    main(Path(sys.argv[1]), forgets="forgets" in sys.argv)
