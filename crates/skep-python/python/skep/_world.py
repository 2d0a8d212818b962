"""Worlds: a machine for programs to run in, and the way of packets through it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Optional, Union

from . import _skep
from ._bytes import bytes_of
from ._errors import WorldError
from ._programs import Program, Redirect, redirect, verdict
from ._values import Verdict

__all__ = ["Device", "End", "Hop", "Link", "Trace", "World"]


@dataclass(frozen=True)
class Device:
    """A network device of a world."""

    index: int
    """Its index, from 1."""
    name: str
    """Its name."""
    mac: str
    """Its Ethernet address."""
    mtu: int
    """The largest packet that it sends, in bytes."""
    up: bool
    """Whether it is up."""
    addresses: list[str]
    """Its addresses, with the lengths of their networks."""


@dataclass(frozen=True)
class Hop:
    """A program that a packet met."""

    program: str
    """Its name."""
    verdict: Verdict
    """What it returned."""
    device: Optional[str]
    """The name of the device."""
    place: str
    """Where on it: `xdp`, `ingress`, `egress` and the like."""
    redirect: Optional[Redirect]
    """Where it redirected the packet."""
    copy: int
    """0 for the packet itself, from 1 for copies: `trace.copies[copy - 1]`."""


class End(NamedTuple):
    """Where a packet ended."""

    fate: str
    """In a word or two: `sent`, `delivered`, `received`, `dropped`, `no route` and the like."""
    text: str
    """In a sentence, with names."""
    device: Optional[str]
    """The device that it left by or was received on."""
    packet: bytes
    """The packet as it was then."""


@dataclass(frozen=True)
class Trace:
    """The way of a packet and of its copies."""

    hops: tuple[Hop, ...]
    """The programs that they met, in order."""
    end: End
    """Where the packet ended."""
    copies: tuple[End, ...]
    """Where its copies ended."""
    text: str
    """The whole as lines of text."""

    @property
    def fate(self) -> str:
        """What became of the packet: `end.fate`."""
        return self.end.fate

    @property
    def packet(self) -> bytes:
        """The packet as it ended: `end.packet`."""
        return self.end.packet

    def __str__(self) -> str:
        return self.text


class Link:
    """Programs at a place of a world, until `detach`, the end of a `with` block, or the end of this object."""

    def __init__(self, native: _skep.Link, program: Program) -> None:
        self._native = native
        self._program = program

    def detach(self) -> None:
        """Detaches them. Does nothing the second time."""
        self._native.detach()

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.detach()


class World:
    """A machine: devices, routes, neighbours, sockets, a clock, random numbers. `open` and `from_toml` make one.

    Give it to a runtime, whose programs see it then: `skep.Runtime(world=world)`.
    """

    def __init__(self, native: _skep.World) -> None:
        self._native = native

    @classmethod
    def open(cls, path: Union[str, os.PathLike[str]]) -> World:
        """The world that a TOML file describes, as for `skep run --world`."""
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except WorldError as error:
            raise WorldError(f"{os.fspath(path)}: {error}") from None

    @classmethod
    def from_toml(cls, text: str) -> World:
        """The world that a text in TOML describes."""
        return cls(_skep.World.parse(text))

    @property
    def devices(self) -> dict[str, Device]:
        """Its devices, by name."""
        return {row[1]: Device(*row) for row in self._native.devices()}

    def attach(
        self, program: Program, device: Union[int, str, None] = None, place: Optional[str] = None
    ) -> Link:
        """Attaches a program, whose runtime must see this world, to a device.

        Without a `device`, that is the first one. Without a `place`, it is where packets that come in meet programs of
        that type: `xdp` for XDP, `ingress` for traffic control, and the network stack's own hooks for packet filters,
        socket look-ups and control groups. Keep the link: the program stays attached as long as that lives.
        """
        return Link(self._native.attach(program._native, device, place), program)

    def inject(
        self,
        packet: object,
        device: Union[int, str, None] = None,
        *,
        info: Optional[Mapping[str, Any]] = None,
    ) -> Trace:
        """Sends a packet into a device, the first one without any, and tells its whole way.

        The packet goes through XDP, traffic control, the packet filter, routes and sockets, as in Linux.
        """
        fields = None if info is None else dict(info)
        made = self._native.inject(bytes_of(packet, "a packet"), device, fields)
        return Trace(
            hops=tuple(_hop(hop) for hop in made["hops"]),
            end=End(*made["end"]),
            copies=tuple(End(*copy) for copy in made["copies"]),
            text=made["text"],
        )

    def step(self, seconds: float) -> int:
        """Moves the virtual clock, and calls the timers of programs that are due. Returns how many.

        Raises `WorldError` if the clock is the system's, and while another step is in progress.
        """
        called = self._native.step(seconds)
        if called is None:
            raise WorldError('the clock is the system\'s: give the world one of its own, such as clock = "0s"')
        return called

    @property
    def now(self) -> int:
        """The nanoseconds that its clock says, as `bpf_ktime_get_ns` does."""
        return self._native.now()

    def __repr__(self) -> str:
        return f"<skep.World with {', '.join(self.devices) or 'no devices'}>"


def _hop(hop: dict[str, Any]) -> Hop:
    return Hop(
        program=hop["program"],
        verdict=verdict(hop["result"], hop["name"]),
        device=hop["device"],
        place=hop["place"],
        redirect=redirect(hop["redirect"]),
        copy=hop["copy"],
    )
