"""Maps as mappings and queues.

Programs and other threads change maps at any time. So operations of hash tables do not look first and act then: each
is one operation of the map (`pop` takes an element and returns it, `setdefault` inserts if there is none). Tries and
maps of devices have no such operations for `pop`, `popitem` and `setdefault`, which look up first: the value may be one
that was replaced meanwhile. Iterations go over the elements as they were when they began.
"""

from __future__ import annotations

import ipaddress
from collections.abc import ItemsView, Iterable, Iterator, MutableMapping, ValuesView
from typing import Any, Optional, TypeVar, Union

from ._errors import MapKeyError
from ._skep import Map as _Map
from ._values import PerCpu, freeze

__all__ = ["ArrayMap", "BloomFilter", "HashMap", "LpmTrie", "Map", "Queue", "Stack", "TableMap"]

_T = TypeVar("_T")
_MISSING = object()
_NOEXIST = 1


class Map:
    """A map of a module: what all kinds have in common."""

    def __init__(self, native: _Map) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """Its name in the source."""
        return self._native.name

    @property
    def kind(self) -> str:
        """Its kind, as bpftool writes it: `hash`, `percpu_array`."""
        return self._native.kind

    @property
    def key_size(self) -> int:
        """Bytes in a key."""
        return self._native.key_size

    @property
    def value_size(self) -> int:
        """Bytes in a value, of one CPU."""
        return self._native.value_size

    @property
    def max_entries(self) -> int:
        """The most elements; bytes of a ring."""
        return self._native.max_entries

    @property
    def memory(self) -> int:
        """Bytes of memory that it has."""
        return self._native.memory

    def is_same(self, other: Map) -> bool:
        """Whether both are the same map, as after `load(..., reuse_maps=module)`."""
        return self._native.is_same(other._native)

    def __repr__(self) -> str:
        return f"<skep.{type(self).__name__} {self.name!r} ({self.kind}, {self.max_entries} entries)>"


class TableMap(Map, MutableMapping[Any, Any]):
    """A map with keys, as a mapping.

    Keys and values are what the object's types say: integers, `bool`, names of enumerators, `str` for arrays of
    characters, lists, dictionaries for structures; and `bytes` where there is no type. Bytes and addresses of
    `ipaddress` may stand for anything of their size. Members that are left out are zero. Keys that are structures come
    back as `skep.Key`, which have a hash.

    The values of per-CPU kinds are `skep.PerCpu`; another value is assigned to all CPUs.
    """

    def __getitem__(self, key: Any) -> Any:
        value = self._native.get(self._key(key))
        if value is None:
            raise self._no_key(key)
        return self._value(value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._native.set(self._key(key), value, each=isinstance(value, PerCpu))

    def __delitem__(self, key: Any) -> None:
        if not self._native.delete(self._key(key)):
            raise self._no_key(key)

    def __contains__(self, key: object) -> bool:
        return self._native.get(self._key(key)) is not None

    def __len__(self) -> int:
        return len(self._native)

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key, _ in self._entries()])

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        value = self._native.get(self._key(key))
        return default if value is None else self._value(value)

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        """Removes a key and returns its value. Of several threads, one gets it."""
        value = self._native.take(self._key(key))
        if value is not None:
            return self._value(value)
        if default is _MISSING:
            raise self._no_key(key)
        return default

    def popitem(self) -> tuple[Any, Any]:
        """Removes any element and returns it."""
        for key, _ in self._entries():
            value = self._native.take(key)
            if value is not None:
                return key, self._value(value)
        raise KeyError(f"map {self.name!r} is empty")

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of a key; inserts `default` if there is none."""
        encoded = self._key(key)
        while True:
            value = self._native.get(encoded)
            if value is not None:
                return self._value(value)
            self._native.set(encoded, default, each=isinstance(default, PerCpu), flags=_NOEXIST)

    def clear(self) -> None:
        """Removes all elements that there are now."""
        for key, _ in self._entries():
            self._native.delete(key)

    def items(self) -> ItemsView[Any, Any]:
        """Keys and values: an iteration has each element as it was at one time."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """Values: as in `items`."""
        return _Values(self)

    def to_dict(self) -> dict[Any, Any]:
        """A copy of the elements."""
        return dict(self._entries())

    def _entries(self) -> list[tuple[Any, Any]]:
        return [(freeze(key), self._value(value)) for key, value in self._native.entries()]

    def _key(self, key: Any) -> Any:
        return key

    def _value(self, value: Any) -> Any:
        return PerCpu(value) if isinstance(value, tuple) else value

    def _no_key(self, key: object) -> KeyError:
        return KeyError(key)


class HashMap(TableMap):
    """A hash table, also with a value for each CPU or that forgets what was used least recently."""


class ArrayMap(TableMap):
    """An array: all indices are there, and stay."""

    def __delitem__(self, key: Any) -> None:
        raise TypeError(f"elements of array {self.name!r} cannot be deleted: assign to them")

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        """Elements of arrays stay."""
        raise TypeError(f"elements of array {self.name!r} cannot be removed: assign to them")

    def popitem(self) -> tuple[Any, Any]:
        """Elements of arrays stay."""
        raise TypeError(f"elements of array {self.name!r} cannot be removed: assign to them")

    def clear(self) -> None:
        """Elements of arrays stay."""
        raise TypeError(f"elements of array {self.name!r} cannot be removed: assign to them")

    def _no_key(self, key: object) -> KeyError:
        return MapKeyError(f"index {key!r} is out of range for array {self.name!r} ({self.max_entries} entries)")


_Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
_Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


class LpmTrie(TableMap):
    """A trie of prefixes. Looking up finds the longest prefix that contains the key.

    Beside structures and bytes, a key may be a network or an address, of `ipaddress` or as text: `trie["10.0.0.0/8"]`,
    `trie["10.1.2.3"]`. Keys come back as the object's types say; `network` makes a network of one.
    """

    def network(self, key: Any) -> _Network:
        """The network that a key is."""
        encoded = self._native.encode_key(self._key(key))
        return ipaddress.ip_network((encoded[4:], int.from_bytes(encoded[:4], "little")), strict=False)

    def _key(self, key: Any) -> Any:
        if isinstance(key, str):
            key = ipaddress.ip_network(key, strict=False)
        if isinstance(key, (ipaddress.IPv4Address, ipaddress.IPv6Address)):
            key = ipaddress.ip_network(key)
        if not isinstance(key, (ipaddress.IPv4Network, ipaddress.IPv6Network)):
            return key
        encoded = key.prefixlen.to_bytes(4, "little") + key.network_address.packed
        if len(encoded) != self.key_size:
            size = self.key_size - 4
            raise ValueError(f"keys of {self.name!r} have {size} bytes beside the length; {key} has others")
        return encoded


class Queue(Map):
    """A queue: first in, first out."""

    def push(self, value: Any, *, replace: bool = False) -> None:
        """Adds a value. With `replace`, a full queue loses its oldest value instead of raising `MapFullError`."""
        self._native.push(value, replace=replace)

    def extend(self, values: Iterable[Any]) -> None:
        """Adds values, one after the other."""
        for value in values:
            self._native.push(value)

    def pop(self) -> Any:
        """Takes the next value."""
        value = self._native.pop()
        if value is None:
            raise IndexError(f"pop from {self.kind} {self.name!r}, which is empty")
        return value

    def peek(self) -> Optional[Any]:
        """The next value, which stays; `None` if there is none."""
        return self._native.peek()

    def __len__(self) -> int:
        return len(self._native)

    def __bool__(self) -> bool:
        return len(self) > 0


class Stack(Queue):
    """A stack: last in, first out."""


class BloomFilter(Map):
    """A bloom filter: `value in filter` is never wrongly false."""

    def add(self, value: Any) -> None:
        """Adds a value, for ever."""
        self._native.push(value)

    def __contains__(self, value: object) -> bool:
        return self._native.contains(value)


class _Items(ItemsView[Any, Any]):
    def __init__(self, mapping: TableMap) -> None:
        super().__init__(mapping)
        self._of = mapping

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._of._entries())


class _Values(ValuesView[Any]):
    def __init__(self, mapping: TableMap) -> None:
        super().__init__(mapping)
        self._of = mapping

    def __iter__(self) -> Iterator[Any]:
        return iter([value for _, value in self._of._entries()])
