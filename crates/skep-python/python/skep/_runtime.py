"""Runtimes: settings, loads, tenants."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _skep
from ._bytes import bytes_of
from ._errors import ObjectError
from ._maps import Map
from ._module import Module
from ._programs import Budget
from ._world import World

__all__ = ["Proof", "Runtime", "Source", "Tenant", "Usage", "load", "verify"]

Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview]
"""An object: the path of its file, or its bytes."""

_SAMPLES = 16384


class Usage(NamedTuple):
    """What a tenant uses of a resource."""

    used: int
    """What it has now, with what waits for readers."""
    peak: int
    """The most that it had."""
    limit: Optional[int]
    """The most that it may have, or `None`."""
    refused: int
    """How often it was refused."""


class Tenant:
    """An account of what modules take, with limits; what would exceed one raises `QuotaError`.

    `map_memory` and `code_memory` are bytes, `maps` and `programs` numbers, `max_walked` the most instructions that the
    verifier walks for one program.
    """

    def __init__(
        self,
        name: str,
        *,
        map_memory: Optional[int] = None,
        maps: Optional[int] = None,
        code_memory: Optional[int] = None,
        programs: Optional[int] = None,
        max_walked: Optional[int] = None,
    ) -> None:
        self._native = _skep.Tenant(
            name,
            map_memory=map_memory,
            maps=maps,
            code_memory=code_memory,
            programs=programs,
            max_walked=max_walked,
        )

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    @property
    def usage(self) -> dict[str, Usage]:
        """What it uses: of `map_memory`, `maps`, `code_memory`, `programs`."""
        return {name: Usage(*used) for name, used in self._native.usage().items()}

    def set_limit(self, resource: str, limit: Optional[int]) -> None:
        """Changes a limit, for what is taken from now on."""
        self._native.set_limit(resource, limit)

    def __repr__(self) -> str:
        return f"<skep.Tenant {self.name!r}>"


class Runtime:
    """Loads objects and runs their programs in this process. Threads may share it.

    - `cpus`: how many virtual CPUs there are: runs that can be in progress at once, and values of per-CPU maps.
      Default: 64, or twice the number of processors if that is more.
    - `map_memory`: the most bytes that one map may take. Default: 4 GiB.
    - `code_memory`: the most bytes of executable memory.
    - `max_walked`: the most instructions that the verifier walks for one program. Default: 1,000,000, as in Linux.
    - `privileged`: lets addresses leave programs as numbers, as Linux allows its root user.
    - `untrusted`: for programs whose authors may attack this process: hidden constants, masked speculation, coarse
      clocks, code memory that is never writable.
    - `clock_granularity`: programs see times that are multiples of this, in seconds.
    - `budget`: what each run may take, unless `Program.run` says otherwise.
    - `interruptible`: lets Ctrl-C and `interrupt` end a run in its middle, without another limit. Its programs have
      checks in their loops, and runs on the main thread are made by another thread, which costs some 0.1 ms each. A
      `budget` has the same effect. Without either, Ctrl-C is heeded between runs.
    - `log`: a function that gets the program's name and the message of `bpf_printk`, on the thread that runs the
      program. Default: standard error. Its exceptions are reported by `sys.unraisablehook`.
    - `stats`: counts runs and their times, for `Program.stats`.
    - `world`: the machine that programs see.
    """

    def __init__(
        self,
        *,
        cpus: Optional[int] = None,
        map_memory: Optional[int] = None,
        code_memory: Optional[int] = None,
        max_walked: Optional[int] = None,
        privileged: bool = False,
        untrusted: bool = False,
        clock_granularity: Optional[float] = None,
        budget: Optional[Union[Budget, tuple[Optional[int], Optional[float]]]] = None,
        interruptible: bool = False,
        log: Optional[Callable[[str, str], object]] = None,
        stats: bool = False,
        world: Optional[World] = None,
    ) -> None:
        if log is not None and not callable(log):
            raise TypeError(f"log is a function of a program's name and a message; found {type(log).__name__}")
        self._world = world
        self._native = _skep.Runtime(
            {
                "cpus": cpus,
                "map_memory": map_memory,
                "code_memory": code_memory,
                "max_walked": max_walked,
                "privileged": privileged,
                "untrusted": untrusted,
                "clock_granularity": clock_granularity,
                "budget": None if budget is None else (budget[0], budget[1]),
                "interruptible": interruptible,
                "log": log,
                "stats": stats,
                "world": None if world is None else world._native,
            }
        )

    @property
    def cpus(self) -> int:
        """How many virtual CPUs there are."""
        return self._native.cpus

    @property
    def world(self) -> Optional[World]:
        """The machine that its programs see."""
        return self._world

    def load(
        self,
        source: Source,
        *,
        variables: Optional[Mapping[str, Any]] = None,
        max_entries: Optional[Mapping[str, int]] = None,
        maps: Optional[Mapping[str, Map]] = None,
        reuse_maps: Optional[Module] = None,
        fresh_maps: Iterable[str] = (),
        programs: Optional[Iterable[str]] = None,
        type: Optional[str] = None,
        buffer_len: int = 0,
        sleepable: bool = False,
        tenant: Optional[Tenant] = None,
        sample_bytes: int = _SAMPLES,
    ) -> Module:
        """Verifies and compiles an object's programs and makes its maps: all or nothing.

        `source` is a path or bytes. `variables` sets global variables, constants (`const volatile`) included;
        `max_entries` the capacities of maps. `maps` gives maps of other modules in place of the object's;
        `reuse_maps` takes over all maps of an older module that have the same name, without the `fresh_maps`.
        `programs` loads only these, at least one; `type` is their type, in place of that of their sections. `buffer_len` is the
        length of the buffer of programs of type `raw`. `sleepable` lets programs sleep. `tenant` pays for what the load
        makes. `sample_bytes` is the room for samples of perf events, for each virtual CPU.

        Raises `VerifierError` if a program is refused, `ObjectError` if the file is none, `UnknownNameError` for names
        that the object lacks, and other kinds of `LoadError`; `OSError` if the file cannot be read.
        """
        choices = {
            "assembly": None,
            "programs": _chosen(programs),
            "program_type": type,
            "variables": dict(variables or {}),
            "max_entries": list((max_entries or {}).items()),
            "maps": [(name, given._native) for name, given in (maps or {}).items()],
            "reuse_maps": None if reuse_maps is None else reuse_maps._native,
            "fresh_maps": _names("fresh_maps", fresh_maps),
            "buffer_len": buffer_len,
            "sleepable": sleepable,
            "tenant": None if tenant is None else tenant._native,
        }
        data, name = _read(source)
        try:
            return Module(self._native.load(data, choices), self._native, sample_bytes)
        except ObjectError as error:
            if name is None:
                raise
            raise ObjectError(f"{name}: {error}") from None

    def assemble(self, text: str, *, name: str = "program", type: str = "raw", buffer_len: int = 0) -> Module:
        """Loads one program that is written in assembler, without maps: `"r0 = 7\\nexit"`."""
        choices: dict[str, Any] = {
            "assembly": (name, text),
            "programs": None,
            "program_type": type,
            "variables": {},
            "max_entries": [],
            "maps": [],
            "reuse_maps": None,
            "fresh_maps": [],
            "buffer_len": buffer_len,
            "sleepable": False,
            "tenant": None,
        }
        return Module(self._native.load(b"", choices), self._native, _SAMPLES)

    def interrupt(self) -> None:
        """Ends all runs in progress, on any thread, if the runtime has budgets."""
        self._native.interrupt()

    def synchronize(self) -> None:
        """Waits until no thread runs a program that was replaced or removed before this call."""
        self._native.synchronize()

    def enable_stats(self, on: bool = True) -> None:
        """Turns statistics of runs on or off."""
        self._native.enable_stats(on)

    @property
    def code_bytes(self) -> int:
        """Bytes of executable memory that are used."""
        return self._native.used_code()

    def __repr__(self) -> str:
        return f"<skep.Runtime with {self.cpus} virtual CPUs>"


def load(source: Source, *, world: Optional[World] = None, **choices: Any) -> Module:
    """Loads an object into a new runtime: `Runtime(world=world).load(source, **choices)`."""
    return Runtime(world=world).load(source, **choices)


class Proof(NamedTuple):
    """A program that the verifier accepts."""

    program: str
    """Its name."""
    type: str
    """Its type."""
    walked: int
    """Instructions that the verifier walked, over all paths."""
    log: list[str]
    """The lines of the verifier's log in Linux's syntax, if they were asked for."""


def verify(
    source: Source,
    *,
    program: Optional[str] = None,
    type: Optional[str] = None,
    buffer_len: int = 0,
    strict_alignment: bool = False,
    log: bool = False,
) -> list[Proof]:
    """Verifies the programs of an object, or one of them, without loading them.

    It knows more than a runtime provides: programs that trace a kernel, for example. Raises `VerifierError` for the
    first program that is refused.
    """
    data, name = _read(source)
    try:
        proofs = _skep.verify(
            data,
            program=program,
            program_type=type,
            buffer_len=buffer_len,
            strict_alignment=strict_alignment,
            log=log,
        )
    except ObjectError as error:
        if name is None:
            raise
        raise ObjectError(f"{name}: {error}") from None
    return [Proof(*proof) for proof in proofs]


def _read(source: Source) -> tuple[bytes, Optional[str]]:
    """The bytes of an object, and its path."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes_of(source, "an object"), None
    path = Path(source)
    return path.read_bytes(), str(path)


def _chosen(programs: Optional[Iterable[str]]) -> Optional[list[str]]:
    """The only programs to load; `None` for all."""
    names = _names("programs", programs)
    if names == []:
        raise ValueError("programs is empty: name at least one, or leave it out to load all")
    return names


def _names(what: str, names: Optional[Iterable[str]]) -> Optional[list[str]]:
    if isinstance(names, str):
        raise TypeError(f"{what} is a list of names; write [{names!r}]")
    return None if names is None else list(names)
