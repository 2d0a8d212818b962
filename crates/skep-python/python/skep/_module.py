"""Modules: programs, maps and variables of a loaded object, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Callable, Optional, TypeVar

from ._errors import UnknownNameError
from ._events import PerfEventArray, RingBuffer, UserRingBuffer
from ._maps import ArrayMap, BloomFilter, HashMap, LpmTrie, Map, Queue, Stack, TableMap
from ._programs import Program
from ._skep import Map as _Map
from ._skep import Module as _Module
from ._values import known

__all__ = ["Module", "Names", "ProgramArray", "Variables"]

_T = TypeVar("_T")

_KINDS: dict[str, Callable[[_Map], Map]] = {
    "array": ArrayMap,
    "percpu_array": ArrayMap,
    "hash": HashMap,
    "lru_hash": HashMap,
    "percpu_hash": HashMap,
    "lru_percpu_hash": HashMap,
    "lpm_trie": LpmTrie,
    "queue": Queue,
    "stack": Stack,
    "bloom_filter": BloomFilter,
    "devmap": TableMap,
    "devmap_hash": TableMap,
    "cpumap": TableMap,
    "xskmap": TableMap,
}
_EVENTS: dict[str, Callable[[_Map, _Module, int], Map]] = {
    "ringbuf": RingBuffer,
    "perf_event_array": PerfEventArray,
    "user_ringbuf": UserRingBuffer,
}


def unknown(what: str, name: object, names: Mapping[str, object] | list[str]) -> UnknownNameError:
    """The error for a name that is not there."""
    there = list(names)
    similar = difflib.get_close_matches(name, there, n=1) if isinstance(name, str) else []
    hint = f"; did you mean {similar[0]!r}?" if similar else ""
    error = UnknownNameError(f"there is no {what} {name!r}; there are: {known(there)}{hint}")
    error.what, error.name, error.known = what, str(name), there
    return error


class Names(Mapping[str, _T]):
    """What a module has, by name, in the object's order. It never changes."""

    def __init__(self, what: str, found: dict[str, _T]) -> None:
        self._what = what
        self._found = found

    def __getitem__(self, name: str) -> _T:
        try:
            return self._found[name]
        except KeyError:
            raise unknown(self._what, name, self._found) from None

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"<{self._what}s: {known(self._found)}>"


class Variables(Mapping[str, Any]):
    """The global variables of a module: `module.variables["limit"] = 5`, while programs run.

    Only that variable changes. Constants (`const volatile`) are given to `load`; here they can be read.
    """

    def __init__(self, native: _Module) -> None:
        self._native = native
        self._found = {name: (size, constant) for name, size, constant in native.variables()}

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            raise unknown("variable", name, self._found)
        return self._native.variable(name)

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._found:
            raise unknown("variable", name, self._found)
        self._native.set_variable(name, value)

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def constants(self) -> frozenset[str]:
        """The names of those that programs rely on."""
        return frozenset(name for name, (_, constant) in self._found.items() if constant)

    def __repr__(self) -> str:
        return f"<variables: {known(self._found)}>"


class ProgramArray(Map, MutableMapping[int, Program]):
    """An array of programs, the targets of tail calls: a mapping from the indices that have one."""

    def __init__(self, native: _Map, module: _Module, runtime: object) -> None:
        super().__init__(native)
        self._module = module
        self._runtime = runtime

    def __getitem__(self, index: int) -> Program:
        found = self._module.array_program(self.name, index)
        if found is None:
            raise KeyError(index)
        return Program(found, self._runtime)

    def __setitem__(self, index: int, program: Program) -> None:
        if not isinstance(program, Program):
            raise TypeError(f"elements of {self.name!r} are programs; found {type(program).__name__}")
        self._module.set_array_program(self.name, index, program._native)

    def __delitem__(self, index: int) -> None:
        if not self._module.set_array_program(self.name, index, None):
            raise KeyError(index)

    def __iter__(self) -> Iterator[int]:
        held = self._module.array_program
        return iter([index for index in range(self.max_entries) if held(self.name, index) is not None])

    def __len__(self) -> int:
        return len(self._native)


class Module:
    """A loaded object: its programs, maps and variables. `Runtime.load` makes it.

    Everything is made by the load: looking something up never makes anything, so threads may share a module freely.
    """

    def __init__(self, native: _Module, runtime: object, room: int) -> None:
        self._native = native
        self._runtime = runtime
        programs = {program.name: Program(program, runtime) for program in native.programs()}
        # All of them now: a map of events has one consumer, and two threads that look it up must find the same.
        maps = {found.name: _map(found, native, runtime, room) for found in native.maps() if not found.is_section}
        self._programs = Names("program", programs)
        self._maps: Names[Any] = Names("map", maps)
        self._variables = Variables(native)

    @property
    def programs(self) -> Names[Program]:
        """Its programs, by name."""
        return self._programs

    @property
    def maps(self) -> Names[Any]:
        """Its maps, by name: `HashMap`, `ArrayMap`, `LpmTrie`, `Queue`, `Stack`, `RingBuffer` and so on.

        Without those of its variables, and without those that no loaded program uses and that could not be made.
        """
        return self._maps

    @property
    def variables(self) -> Variables:
        """Its global variables, by name."""
        return self._variables

    @property
    def unused_maps(self) -> dict[str, Optional[str]]:
        """Maps that were not made, since no loaded program reaches them, with the reason if they could not be."""
        return dict(self._native.unused_maps())

    def decode(self, type_name: str, data: object) -> Any:
        """The value of bytes, by a type of the object: `module.decode("struct event", data)`."""
        from ._bytes import bytes_of

        return self._native.decode(type_name, bytes_of(data, "a value"))

    def encode(self, type_name: str, value: Any) -> bytes:
        """The bytes of a value, by a type of the object."""
        return self._native.encode(type_name, value)

    def __repr__(self) -> str:
        return f"<skep.Module programs: {known(self._programs)}; maps: {known(self._maps)}>"


def _map(native: _Map, module: _Module, runtime: object, room: int) -> Map:
    kind = native.kind
    if kind == "prog_array":
        return ProgramArray(native, module, runtime)
    if kind in _EVENTS:
        return _EVENTS[kind](native, module, room)
    return _KINDS.get(kind, Map)(native)
