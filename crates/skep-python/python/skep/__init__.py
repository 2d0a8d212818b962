"""Run and test eBPF programs, without root and without a kernel.

    import skep

    module = skep.load("firewall.bpf.o")
    outcome = module["firewall"].run(packet)
    assert outcome.verdict == "drop"
    assert module.maps["verdicts"][0] == 1

Every program is verified before it runs, so nothing that a program does can harm the process. Values of maps and variables
are numbers, text, lists and dictionaries by the types in the object (BTF); bytes are taken everywhere, too.
"""

import os
from collections.abc import Mapping, MutableMapping

from ._skep import Link, Outcome, Refused, RingBuffer, SkepError, Trace, World as _World, __version__
from ._skep import Module as _Module
from ._skep import Program
from ._skep import Runtime as _Runtime

__all__ = [
    "Link",
    "Map",
    "Module",
    "Outcome",
    "Program",
    "Queue",
    "Refused",
    "RingBuffer",
    "Runtime",
    "SkepError",
    "Struct",
    "Trace",
    "World",
    "__version__",
    "load",
]


class Struct(dict):
    """A structure: a dictionary whose members are attributes, too. Its hash is that of its members, so that it can be a key."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the structure has no member {name}; its members: {', '.join(self)}") from None

    def __hash__(self):
        return hash(tuple((name, _hashable(value)) for name, value in self.items()))


def _hashable(value):
    if isinstance(value, list):
        return tuple(_hashable(each) for each in value)
    return value


def _shown(value):
    """The value with its dictionaries as structures."""
    if isinstance(value, dict):
        return Struct((name, _shown(each)) for name, each in value.items())
    if isinstance(value, list):
        return [_shown(each) for each in value]
    return value


class Map(MutableMapping):
    """A map as a mapping. Of kinds per CPU, a value is a list with one for each virtual CPU."""

    def __init__(self, raw):
        self._raw = raw

    name = property(lambda self: self._raw.name)
    kind = property(lambda self: self._raw.kind)
    key_size = property(lambda self: self._raw.key_size)
    value_size = property(lambda self: self._raw.value_size)
    max_entries = property(lambda self: self._raw.max_entries)

    def __getitem__(self, key):
        value = self._raw.lookup(key)
        if value is None:
            raise KeyError(key)
        return _shown(value)

    def __setitem__(self, key, value):
        self._raw.update(key, value)

    def __delitem__(self, key):
        if not self._raw.delete(key):
            raise KeyError(key)

    def __contains__(self, key):
        return self._raw.lookup(key) is not None

    def __iter__(self):
        return (_shown(key) for key, _ in self._raw.entries())

    def __len__(self):
        return len(self._raw)

    def items(self):
        """All keys and values, at about this time."""
        return [(_shown(key), _shown(value)) for key, value in self._raw.entries()]

    def values(self):
        """All values, at about this time."""
        return [_shown(value) for _, value in self._raw.entries()]

    def __repr__(self):
        return f"<skep.Map {self.name} ({self.kind}), {len(self)} of {self.max_entries}>"


class Queue:
    """A queue, a stack, or a bloom filter, to which values are only added."""

    def __init__(self, raw):
        self._raw = raw

    name = property(lambda self: self._raw.name)
    kind = property(lambda self: self._raw.kind)
    value_size = property(lambda self: self._raw.value_size)
    max_entries = property(lambda self: self._raw.max_entries)

    def push(self, value):
        self._raw.push(value)

    def pop(self):
        """Takes the next value; `None` if there is none."""
        return _shown(self._raw.pop())

    def peek(self):
        """The next value, which stays; `None` if there is none."""
        return _shown(self._raw.peek())

    def __len__(self):
        return len(self._raw)

    def __repr__(self):
        return f"<skep.Queue {self.name} ({self.kind})>"


_WITHOUT_KEYS = ("queue", "stack", "bloom_filter")


class _Maps(Mapping):
    """The maps of a module, by name."""

    def __init__(self, module):
        self._module = module

    def __getitem__(self, name):
        raw = self._module.map(name)
        return Queue(raw) if raw.kind in _WITHOUT_KEYS else Map(raw)

    def __iter__(self):
        return iter(self._module.map_names)

    def __len__(self):
        return len(self._module.map_names)


class _Variables(MutableMapping):
    """The global variables of a module, by name."""

    def __init__(self, module):
        self._module = module

    def __getitem__(self, name):
        return _shown(self._module.variable(name))

    def __setitem__(self, name, value):
        self._module.set_variable(name, value)

    def __delitem__(self, name):
        raise TypeError("variables cannot be deleted")

    def __iter__(self):
        return iter(self._module.variable_names)

    def __len__(self):
        return len(self._module.variable_names)


class Module:
    """A loaded object: `module["name"]` is a program; `maps`, `variables` and `ring(name)` are its data."""

    def __init__(self, inner):
        self._inner = inner
        self.programs = {program.name: program for program in inner.programs}
        self.maps = _Maps(inner)
        self.variables = _Variables(inner)

    def __getitem__(self, name):
        try:
            return self.programs[name]
        except KeyError:
            known = ", ".join(self.programs) or "none"
            raise KeyError(f"the module has no program {name}; its programs: {known}") from None

    def __iter__(self):
        return iter(self.programs.values())

    def ring(self, name):
        """The consumer of a ring buffer: `poll()` takes records, and `fileno()` is for `select` and `asyncio`."""
        return self._inner.ring(name)

    def __repr__(self):
        return f"<skep.Module {', '.join(self.programs)}>"


class Runtime:
    """What modules share: virtual CPUs, a world, who receives messages of `bpf_printk` (`log(program, message)`)."""

    def __init__(self, *, world=None, cpus=None, log=None, privileged=False):
        self._inner = _Runtime(
            world=None if world is None else world._inner, cpus=cpus, log=log, privileged=privileged
        )

    def load(
        self,
        source,
        *,
        programs=None,
        program_type=None,
        buffer_len=None,
        sleepable=False,
        variables=None,
        max_entries=None,
        maps=None,
        btf=None,
        kconfig=None,
        kernel=None,
    ):
        """Verifies, compiles and installs the programs of an object, given as a path or as bytes.

        `variables` are set before the load, constants included; `max_entries` changes capacities; `maps` fills maps after
        the load: a dictionary, or a list of values for queues. Raises `Refused` if the verifier refuses a program.
        """
        if isinstance(source, os.PathLike):
            source = os.fspath(source)
        module = Module(
            self._inner.load(
                source,
                programs=programs,
                program_type=program_type,
                buffer_len=buffer_len,
                sleepable=sleepable,
                variables=variables,
                max_entries=max_entries,
                btf=btf,
                kconfig=kconfig,
                kernel=kernel,
            )
        )
        for name, elements in (maps or {}).items():
            filled = module.maps[name]
            if isinstance(filled, Queue):
                for value in elements:
                    filled.push(value)
            else:
                filled.update(elements)
        return module

    def synchronize(self):
        """Waits until everything that was freed is gone."""
        self._inner.synchronize()


class World:
    """Devices, routes, sockets and a clock for programs, from a TOML text, or from a file (`World.open`)."""

    def __init__(self, text):
        self._inner = _World(text)

    @classmethod
    def open(cls, path):
        with open(path, encoding="utf-8") as file:
            return cls(file.read())

    def attach(self, program, device, place="xdp"):
        """Attaches a program to a device, at `xdp`, `ingress` or `egress`, until the returned link is closed or gone."""
        return self._inner.attach(program, device, place)

    def inject(self, device, data, **fields):
        """Lets a packet come in on a device, and returns its way: `fate`, `hops`, `data`."""
        return self._inner.inject(device, data, **fields)

    def step(self, seconds):
        """Moves a virtual clock on. Returns its nanoseconds, or `None` if the clock is the system's."""
        return self._inner.step(seconds)


def load(source, *, world=None, cpus=None, log=None, privileged=False, **options):
    """Loads an object into a runtime of its own: see `Runtime` and `Runtime.load`."""
    return Runtime(world=world, cpus=cpus, log=log, privileged=privileged).load(source, **options)
