"""The server that all simulators have in common: it listens, counts and stops; a subclass answers."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import ClassVar, TypeVar

from headwater.sim._armed import Armed
from headwater.sim._connection import Connection
from headwater.sim._faults import Fault
from headwater.sim._listener import Listener
from headwater.sim._protocol import Answer, Request
from headwater.sim._timeline import Timeline

__all__ = ["Sim"]

AnySim = TypeVar("AnySim", bound="Sim")


class Sim(ABC):
    """A real HTTP server on this machine. It listens once it is made; `close()` or `with` ends it."""

    path: ClassVar[str]

    def __init__(
        self,
        seed: int = 0,
        rate: float = 50,
        count: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        start: datetime | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        keep_alive_seconds: float = 15,
    ) -> None:
        self.seed = seed
        self.timeline = Timeline(rate, count, start)
        self._armed = Armed(faults)
        self._keep_alive_seconds = keep_alive_seconds
        self._lock = threading.Lock()
        self._sent = array("q")
        self._reached = 0
        self._requests: list[Request] = []
        self._open: set[socket.socket] = set()
        self._server = Listener((host, port), self._fault_for, self.answer, self._serve)
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name=f"headwater-sim-{self.url}", daemon=True
        )
        self._thread.start()

    @abstractmethod
    def answer(self, request: Request) -> Answer:
        """The records that a request is for. Raises RefusedError."""

    @property
    def url(self) -> str:
        """Where it listens, with the path of the feed."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}{self.path}"

    @property
    def sent(self) -> list[int]:
        """The numbers of all records that were sent whole, in order, with repeats."""
        with self._lock:
            return self._sent.tolist()

    @property
    def requests(self) -> list[Request]:
        """All that came, also those that got no records."""
        with self._lock:
            return list(self._requests)

    @property
    def faults_come(self) -> list[Fault]:
        """Those that have come, in order."""
        return self._armed.come

    def finish(self) -> int:
        """No new records are made from now on; gives how many there are. Connections stay open."""
        self.timeline.finish()
        return self.timeline.end

    def close(self) -> None:
        """Ends all connections and the server. No thread is left."""
        self._stop.close()  # which makes the other end readable, for every connection
        with self._lock:
            for reader in self._open:
                with suppress(OSError):
                    reader.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._stopped.close()

    def __enter__(self: AnySim) -> AnySim:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _note(self, numbers: list[int]) -> None:
        with self._lock:
            self._sent.extend(numbers)
            self._reached = max(self._reached, numbers[-1] + 1)

    def _fault_for(self, request: Request) -> Fault | None:
        with self._lock:
            self._requests.append(request)
            reached = self._reached
        return self._armed.at_request(reached)

    def _serve(self, reader: socket.socket, answer: Answer) -> None:
        with self._lock:
            self._open.add(reader)
        try:
            Connection(
                reader,
                self._stopped,
                self.timeline,
                self._armed,
                answer,
                self._note,
                self._keep_alive_seconds,
            ).run()
        finally:
            with self._lock:
                self._open.discard(reader)
