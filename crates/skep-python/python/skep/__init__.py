"""Load, run and test eBPF programs in this process: no kernel, no root.

    import skep

    module = skep.load("firewall.bpf.o")
    result = module.programs["firewall"].run(packet)
    assert result.verdict.name == "drop"

A program runs only if the verifier has proved it safe; compiled code runs at native speed, with the interpreter of
Python released. Maps are mappings, rings are iterators of events, and worlds are machines for whole ways of packets.
"""

from __future__ import annotations

from ._errors import (
    BudgetError,
    DataError,
    DataRangeError,
    DataTypeError,
    DataValueError,
    InputError,
    InterruptedRunError,
    LoadError,
    MapError,
    MapFullError,
    MapKeyError,
    ObjectError,
    QuotaError,
    RunError,
    SkepError,
    Step,
    UnknownNameError,
    VerifierError,
    WorldError,
)
from ._events import EventStream, PerfEventArray, RingBuffer, Sample, UserRingBuffer
from ._maps import ArrayMap, BloomFilter, HashMap, LpmTrie, Map, Queue, Stack, TableMap
from ._module import Module, Names, ProgramArray, Variables
from ._programs import Budget, Event, Program, Redirect, Result, RunStats
from ._runtime import Proof, Runtime, Source, Tenant, Usage, load, verify
from ._skep import __version__
from ._values import TC, XDP, Key, PerCpu, Verdict
from ._world import Device, End, Hop, Link, Trace, World

__all__ = [
    "TC",
    "XDP",
    "ArrayMap",
    "BloomFilter",
    "Budget",
    "BudgetError",
    "DataError",
    "DataRangeError",
    "DataTypeError",
    "DataValueError",
    "Device",
    "End",
    "Event",
    "EventStream",
    "HashMap",
    "Hop",
    "InputError",
    "InterruptedRunError",
    "Key",
    "Link",
    "LoadError",
    "LpmTrie",
    "Map",
    "MapError",
    "MapFullError",
    "MapKeyError",
    "Module",
    "Names",
    "ObjectError",
    "PerCpu",
    "PerfEventArray",
    "Program",
    "ProgramArray",
    "Proof",
    "Queue",
    "QuotaError",
    "Redirect",
    "Result",
    "RingBuffer",
    "RunError",
    "RunStats",
    "Runtime",
    "Sample",
    "SkepError",
    "Source",
    "Stack",
    "Step",
    "TableMap",
    "Tenant",
    "Trace",
    "UnknownNameError",
    "Usage",
    "UserRingBuffer",
    "Variables",
    "Verdict",
    "VerifierError",
    "World",
    "WorldError",
    "__version__",
    "load",
    "verify",
]
