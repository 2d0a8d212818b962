"""Programs, and what their runs did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional, Union

from ._bytes import bytes_of
from ._errors import InputError
from ._skep import Program as _Program
from ._values import Verdict

__all__ = ["Budget", "Event", "Program", "Redirect", "Result", "RunStats"]


class Budget(NamedTuple):
    """What one run may take. A run that takes more ends with `BudgetError`."""

    units: Optional[int] = None
    """Units of work: one for each turn of a loop and each call."""
    seconds: Optional[float] = None
    """Time."""


class Event(NamedTuple):
    """A sample or record that a run output to a map."""

    map: str
    """The map's name."""
    cpu: int
    """The virtual CPU of the run."""
    data: bytes
    """Its bytes."""


@dataclass(frozen=True)
class Redirect:
    """Where a program sends a packet instead of letting it pass."""

    kind: str
    """`device`, `peer`, `neighbour`, `devices`, `cpu`, `stream` (a connected socket) or `socket` (AF_XDP)."""
    index: int
    """The index of the device, the number of the CPU or socket, or the socket's cookie."""
    ingress: bool
    """Whether it comes in there."""
    next_hop: Optional[str] = None
    """The next hop of a neighbour, if the program said it."""


class RunStats(NamedTuple):
    """Runs while statistics were on."""

    runs: int
    """How many have ended."""
    nanoseconds: int
    """Their time together."""


@dataclass(frozen=True)
class Result:
    """What a run did."""

    verdict: Verdict
    """What the program returned, with its name: `result.verdict == skep.XDP.DROP`, `result.verdict.name == "drop"`.

    The number has 32 bits and a sign, for programs of type `raw` 64 bits and none.
    """
    packet: bytes
    """The packet, buffer or data of the context, as the program left it."""
    changed: bool
    """Whether these bytes differ from the ones that were given."""
    nanoseconds: float
    """The time of a run, on average; it includes what renews the packet."""
    metadata: bytes = b""
    """What an XDP program put before the packet (`bpf_xdp_adjust_meta`)."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The metadata of the packet: mark, priority, VLAN tag and the like."""
    redirect: Optional[Redirect] = None
    """Where the packet goes, if the verdict says that it is redirected."""
    devices: tuple[int, ...] = ()
    """The devices that it leaves by, if these are several."""
    clones: tuple[tuple[Redirect, bytes], ...] = ()
    """Copies that were sent elsewhere (`bpf_clone_redirect`)."""
    events: tuple[Event, ...] = ()
    """Samples and records that were output; consumers of their maps get them too."""
    context: Mapping[str, int] = field(default_factory=dict)
    """The numbers of the context, for programs that run on one."""


class Program:
    """A loaded program. Any number of threads may run it at once."""

    def __init__(self, native: _Program, runtime: object) -> None:
        self._native = native
        # Owns the function that programs print to.
        self._runtime = runtime

    @property
    def name(self) -> str:
        """Its name in the source."""
        return self._native.name

    @property
    def type(self) -> str:
        """Its type, as bpftool writes it: `xdp`, `sched_cls`."""
        return self._native.type

    def run(
        self,
        data: object = b"",
        *,
        info: Optional[Mapping[str, Any]] = None,
        context: Optional[Mapping[str, int]] = None,
        repeat: int = 1,
        budget: Optional[Union[Budget, tuple[Optional[int], Optional[float]]]] = None,
        interpreter: bool = False,
    ) -> Result:
        """Runs it, with the interpreter of Python released.

        `data` is the packet, or the buffer of a program of type `raw`, or the data of a context: `bytes`, `bytearray`,
        `memoryview`, or an object with `__bytes__`, such as a packet of scapy. It is copied; `Result.packet` has it as
        the program left it.

        `info` sets metadata of the packet, such as `{"mark": 7, "ingress_ifindex": 2, "vlan": (0x8100, 5)}`; `context`
        the fields of programs that run on a context, such as `{"major": 8}`. With `repeat`, each run gets the packet
        anew, and the result is that of the last one; Ctrl-C ends it between two runs. `budget` is for each run, in a
        runtime with budgets. `interpreter` runs it without compiled code.

        Raises `InputError` if the program does not take this, `BudgetError` and `InterruptedRunError` if the run was
        ended.
        """
        given = bytes_of(data, f"the input of program {self.name!r}")
        limits = None if budget is None else (budget[0], budget[1])
        kind = self._native.input
        if context is not None and kind != "context":
            raise InputError(f"program {self.name} is of type {self.type} and takes no context")
        if info is not None and kind != "packet":
            raise InputError(f"program {self.name} is of type {self.type} and takes no packet")
        if kind == "packet":
            made = self._native.run_packet(
                given,
                info=None if info is None else dict(info),
                repeat=repeat,
                budget=limits,
                interpreter=interpreter,
            )
        elif kind == "buffer":
            made = self._native.run_buffer(given, repeat=repeat, budget=limits, interpreter=interpreter)
        elif kind == "context":
            if repeat != 1:
                raise InputError(f"program {self.name} runs on a context, once for each call")
            fields = None if context is None else dict(context)
            made = self._native.run_context(fields, given or None, budget=limits, interpreter=interpreter)
        else:
            raise InputError(f"programs of type {self.type} cannot be run from Python")
        return _result(made, given, signed=kind != "buffer")

    def interrupt(self) -> None:
        """Ends all its runs in progress, on any thread. Needs a runtime with budgets."""
        self._native.interrupt()

    @property
    def stats(self) -> RunStats:
        """Its runs while statistics were on."""
        return RunStats(*self._native.stats())

    def reset_stats(self) -> None:
        """Counts from 0 again."""
        self._native.reset_stats()

    def __repr__(self) -> str:
        return f"<skep.Program {self.name!r} ({self.type})>"


def _result(made: dict[str, Any], given: bytes, *, signed: bool) -> Result:
    packet = made["packet"]
    return Result(
        verdict=verdict(made["result"], made["name"], signed=signed),
        packet=packet,
        changed=made.get("changed", packet != given),
        nanoseconds=made["nanoseconds"],
        metadata=made.get("metadata", b""),
        info=made.get("info", {}),
        redirect=redirect(made.get("redirect")),
        devices=tuple(made.get("devices", ())),
        clones=tuple((Redirect(**to), clone) for to, clone in made.get("clones", ())),
        events=tuple(Event(*event) for event in made.get("events", ())),
        context=made.get("context", {}),
    )


def verdict(result: int, name: Optional[str], *, signed: bool = True) -> Verdict:
    """A verdict of the bits that a program returned."""
    if signed:
        result &= 0xFFFF_FFFF
        result -= (result & 0x8000_0000) << 1
    return Verdict(result, name)


def redirect(fields: Optional[dict[str, Any]]) -> Optional[Redirect]:
    """A redirection of its fields."""
    return None if fields is None else Redirect(**fields)
