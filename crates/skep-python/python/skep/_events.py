"""Records of ring buffers, samples of perf events, and records for programs.

Any thread may take events at any time: each event goes to one of them. Iterators are objects with one operation, not
generators, which two threads must not advance at once.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple, Optional

from ._bytes import bytes_of
from ._maps import Map
from ._skep import Events
from ._skep import Map as _Map
from ._skep import Module as _Module

__all__ = ["EventStream", "PerfEventArray", "RingBuffer", "Sample", "UserRingBuffer"]

_Decode = Callable[[bytes], Any]


class Sample(NamedTuple):
    """What a program output to an array of perf events."""

    cpu: int
    """The virtual CPU of the run."""
    data: Any
    """The bytes, or the value that they are."""


class EventStream:
    """Events of a map: iterating takes those that are there.

    `list(events)` takes all. The iteration ends when there is none left; `wait` and `stream` wait for more. `fileno` is
    for `select`, `selectors` and `asyncio`: when it is readable, iterate, which makes it unreadable again.
    """

    def __init__(self, events: Events, decode: _Decode) -> None:
        self._events = events
        self._decode = decode

    def __iter__(self) -> Iterator[Any]:
        return _Drain(self)

    def read(self) -> Any:
        """Takes the next event, or returns `None`."""
        event = self._events.next()
        return None if event is None else self._made(event)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until there is an event, at most `timeout` seconds. Returns whether there is one.

        Another thread may take it before this one does.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._events.ready():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            poll = select.poll()
            poll.register(self.fileno(), select.POLLIN)
            # Not the whole of a long time: the system takes milliseconds of 31 bits.
            poll.poll(None if left is None else math.ceil(min(left, 3600) * 1000))
        return True

    def stream(self, timeout: Optional[float] = None) -> Iterator[Any]:
        """Events as they come: the iteration ends when there is none for `timeout` seconds."""
        return _Stream(self, timeout)

    def fileno(self) -> int:
        """A descriptor that is readable when there are events. Never read it, and do not close it."""
        return self._events.fileno()

    def _made(self, event: tuple[Optional[int], bytes]) -> Any:
        cpu, data = event
        value = self._decode(data)
        return value if cpu is None else Sample(cpu, value)


class _Drain(Iterator[Any]):
    def __init__(self, events: EventStream) -> None:
        self._of = events

    def __next__(self) -> Any:
        event = self._of._events.next()
        if event is None:
            raise StopIteration
        return self._of._made(event)


class _Stream(Iterator[Any]):
    def __init__(self, events: EventStream, timeout: Optional[float]) -> None:
        self._of = events
        self._timeout = timeout

    def __next__(self) -> Any:
        while True:
            event = self._of._events.next()
            if event is not None:
                return self._of._made(event)
            if not self._of.wait(self._timeout):
                raise StopIteration


class _Source(Map, EventStream):
    """A map of events. It has one consumer, which modules that share the map share."""

    def __init__(self, native: _Map, module: _Module, room: int) -> None:
        Map.__init__(self, native)
        EventStream.__init__(self, Events(native, room), native.decode_record)
        self._module = module

    def typed(self, type_name: str) -> EventStream:
        """The same events, read by a type of the object: `events.typed("struct event")`.

        Bytes of another length stay bytes.
        """
        module = self._module
        size = len(module.encode(type_name, {}))

        def decode(data: bytes) -> Any:
            return module.decode(type_name, data) if len(data) == size else data

        return EventStream(self._events, decode)


class RingBuffer(_Source):
    """A ring buffer (`BPF_MAP_TYPE_RINGBUF`): its records are bytes, or values of the type that the map declares."""


class PerfEventArray(_Source):
    """An array of perf events: its events are of the class `Sample`."""

    def lost(self) -> int:
        """How many samples found no room since the last call."""
        return self._events.lost()


class UserRingBuffer(Map):
    """A ring buffer from the host to programs (`BPF_MAP_TYPE_USER_RINGBUF`)."""

    def __init__(self, native: _Map, module: _Module, room: int) -> None:
        super().__init__(native)
        self._events = Events(native, room)

    def send(self, record: object) -> bool:
        """Submits a record: bytes, or what has `__bytes__`. Returns whether there was room."""
        return self._events.send(bytes_of(record, "a record"))

    def fileno(self) -> int:
        """A descriptor that is readable when there is room."""
        return self._events.fileno()
