"""The exceptions of the package.

All have the base `SkepError`, and those that Python has a word for are of that class too: a map that lacks a key raises
a `KeyError`, a number that does not fit an `OverflowError`. The native half makes them and sets their attributes.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

__all__ = [
    "BudgetError",
    "DataError",
    "DataRangeError",
    "DataTypeError",
    "DataValueError",
    "InputError",
    "InterruptedRunError",
    "LoadError",
    "MapError",
    "MapFullError",
    "MapKeyError",
    "ObjectError",
    "QuotaError",
    "RunError",
    "SkepError",
    "Step",
    "UnknownNameError",
    "VerifierError",
    "WorldError",
]


class SkepError(Exception):
    """An error of skep."""

    def __str__(self) -> str:
        # `KeyError` would show the representation of its argument.
        return str(self.args[0]) if self.args else ""


class ObjectError(SkepError, ValueError):
    """The bytes are not an object file that skep understands."""


class LoadError(SkepError):
    """An object could not be loaded, for another reason than the verifier's."""


class Step(NamedTuple):
    """One step of the path that led to a refusal."""

    slot: int
    """The number of the instruction."""
    instruction: str
    """The instruction in assembler, and for branches with both ways open the way taken."""
    file: Optional[str]
    """The source file, if the object has line information."""
    line: Optional[int]
    """The source line, from 1."""
    source: Optional[str]
    """The text of the source line."""
    state: str
    """The value that it made, such as `r2 = pkt(r=0)`; may be empty."""
    why: str
    """Why it matters: `makes`, `narrows`, `passes`, `returns`, `loses`, `skips` or `leads`."""


class VerifierError(LoadError):
    """The verifier refused a program."""

    program: str
    """The program's name."""
    code: str
    """The class of the refusal: `out-of-bounds`, `maybe-null` and the like."""
    slot: int
    """The number of the refused instruction."""
    instruction: str
    """The refused instruction in assembler."""
    reason: str
    """What was expected and what was found."""
    remedy: Optional[str]
    """What to change, if that is known."""
    linux: Optional[str]
    """What Linux's verifier says of the same."""
    file: Optional[str]
    """The source file, if the object has line information."""
    line: Optional[int]
    """The source line, from 1."""
    source: Optional[str]
    """The text of the source line."""
    path: list[Step]
    """The steps that matter, oldest first."""

    def explain(self) -> str:
        """The refusal with its path, in several lines."""
        lines = [str(self)]
        for step in self.path:
            place = f"{step.file}:{step.line}: " if step.file else ""
            state = f"   ; {step.state}" if step.state else ""
            lines.append(f"  {step.why:8} {place}{step.slot}: {step.instruction}{state}")
            if step.source:
                lines.append(f"           {step.source.strip()}")
        return "\n".join(lines)


class UnknownNameError(SkepError, KeyError):
    """There is no map, program, variable or field of that name."""

    what: str
    """`map`, `program`, `variable` or `field`."""
    name: str
    """The name that was asked for."""
    known: list[str]
    """The names that there are."""


class QuotaError(LoadError):
    """A tenant would exceed its quota."""

    tenant: str
    """The tenant's name."""
    resource: str
    """What is limited."""
    used: int
    """What the tenant has."""
    wanted: int
    """What was asked for in addition."""
    limit: int
    """The limit."""


class MapError(SkepError):
    """An operation on a map failed."""

    errno: int
    """Linux's error number for it."""


class MapKeyError(MapError, KeyError):
    """The map has no such key, or the index is out of its range."""


class MapFullError(MapError):
    """The map has no room for another element."""


class DataError(SkepError):
    """A value cannot be the bytes of a key, an element or a variable."""

    path: str
    """Where in the value: `value of flows.directions[0].packets`."""


class DataValueError(DataError, ValueError):
    """A value is wrong: an unknown member, too many elements, a constant."""


class DataTypeError(DataError, TypeError):
    """A value is of another type than the object's."""


class DataRangeError(DataError, OverflowError):
    """A number does not fit."""


class RunError(SkepError):
    """A program could not be run, or its run ended early."""


class InputError(RunError, ValueError):
    """A program does not take this input: another type of program, a buffer of another size."""


class BudgetError(RunError):
    """A run took more than its budget. What it held is released; what it wrote stays."""


class InterruptedRunError(RunError):
    """Another thread ended the run. What it held is released; what it wrote stays."""


class WorldError(SkepError, ValueError):
    """Something of a world's machine is missing or taken, or its file describes none."""
