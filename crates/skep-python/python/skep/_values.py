"""Values that maps and programs have: keys, values of each virtual CPU, verdicts."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, Optional

__all__ = ["TC", "XDP", "Key", "PerCpu", "Verdict"]


class Key(dict[str, Any]):
    """The key of an element, if it is a structure: a dictionary that cannot be changed and has a hash.

    So it can be a key of a `dict` and an element of a `set`. It is equal to a dictionary with the same members; lists
    in it are tuples, and equal to lists.

    >>> key = Key({"port": 80, "address": [10, 0, 0, 1]})
    >>> key == {"port": 80, "address": [10, 0, 0, 1]}
    True
    >>> {key: "web"}[key]
    'web'
    """

    __slots__ = ()

    def __init__(self, members: Mapping[str, Any]) -> None:
        super().__init__({name: freeze(value) for name, value in members.items()})

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self, freeze(other) if isinstance(other, dict) else other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        return dict.__repr__(self)

    def __copy__(self) -> Key:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Key:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Key, (dict(self),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a key cannot be changed: make a dictionary of it with dict(key)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


def freeze(value: Any) -> Any:
    """The value as (part of) a key."""
    if isinstance(value, Key):
        return value
    if isinstance(value, dict):
        return Key(value)
    if isinstance(value, (list, tuple)):
        return tuple(freeze(part) for part in value)
    return value


class PerCpu(tuple[Any, ...]):
    """The values of all virtual CPUs, by number.

    Assigned to a key, each CPU gets its own value; those that are left out become zero.
    """

    __slots__ = ()

    def total(self) -> Any:
        """The sum over all CPUs: of numbers, or of the numbers in structures and arrays.

        >>> PerCpu([{"packets": 1}, {"packets": 2}]).total()
        {'packets': 3}
        """
        total = self[0]
        for value in self[1:]:
            total = _sum(total, value)
        return total

    def __repr__(self) -> str:
        return f"PerCpu({list(self)!r})"


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, (int, float)):
        return one + other
    if isinstance(one, dict):
        return {name: _sum(value, other[name]) for name, value in one.items()}
    if isinstance(one, (list, tuple)):
        return [_sum(*pair) for pair in zip(one, other)]
    raise TypeError(f"values of type {type(one).__name__} have no sum")


class XDP(enum.IntEnum):
    """What an XDP program may return."""

    ABORTED = 0
    DROP = 1
    PASS = 2
    TX = 3
    REDIRECT = 4


class TC(enum.IntEnum):
    """What a program of traffic control may return."""

    UNSPEC = -1
    OK = 0
    RECLASSIFY = 1
    SHOT = 2
    PIPE = 3
    STOLEN = 4
    QUEUED = 5
    REPEAT = 6
    REDIRECT = 7
    TRAP = 8


class Verdict(int):
    """What a program returned: a number, and its name if the program's type gives it one.

    >>> Verdict(1, "drop") == XDP.DROP
    True
    >>> Verdict(1, "drop").name
    'drop'
    """

    name: Optional[str]
    """`pass`, `drop` and the like."""

    def __new__(cls, value: int, name: Optional[str] = None) -> Verdict:
        made = super().__new__(cls, value)
        made.name = name
        return made

    # Declared, so that type checkers let verdicts be compared with members of `XDP` and `TC`.
    def __eq__(self, other: object) -> bool:
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        return int(self) != other

    __hash__ = int.__hash__

    def __repr__(self) -> str:
        return f"<Verdict {self.name}: {int(self)}>" if self.name else f"<Verdict {int(self)}>"

    def __str__(self) -> str:
        return self.name or str(int(self))

    def __getnewargs__(self) -> tuple[int, Optional[str]]:  # type: ignore[override]
        return int(self), self.name


def known(names: Iterable[str]) -> str:
    """Names, for an error."""
    return ", ".join(names) or "none"
