"""Maps as Python's mappings and queues."""

from __future__ import annotations

import ipaddress
import operator
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
from conftest import OBJECT, PACKET

import skep

KEY = {"address": [10, 0, 0, 1], "port": 80, "local": True}


def test_structures_are_dictionaries(module: skep.Module) -> None:
    flows = module.maps["flows"]
    flows[KEY] = {"packets": 3, "score": -4, "state": "STATE_OPEN", "name": "eth0"}
    value = flows[KEY]
    assert value == {"packets": 3, "score": -4, "state": "STATE_OPEN", "name": "eth0"}
    (key,) = flows
    assert key == {**KEY, "unused": 0}
    assert flows[key] == value
    assert {key: 1}[key] == 1
    with pytest.raises(TypeError, match="cannot be changed"):
        key["port"] = 81


def test_addresses_and_bytes_stand_for_their_bytes(module: skep.Module) -> None:
    flows = module.maps["flows"]
    flows[{"address": ipaddress.ip_address("10.0.0.1"), "port": 80}] = {"packets": 1}
    assert flows[{"address": b"\x0a\x00\x00\x01", "port": 80}]["packets"] == 1
    assert flows[b"\x0a\x00\x00\x01\x50\x00\x00\x00"]["packets"] == 1
    flows[KEY] = bytes(24)
    assert flows[KEY]["state"] == "STATE_NEW"
    flows[KEY] = bytes(12) + b"\x63\0\0\0" + b"\xff" * 8
    assert flows[KEY]["state"] == 99, "no value of the enumeration"
    assert flows[KEY]["name"] == b"\xff" * 8, "no text"


def test_values_of_another_kind_are_errors_as_pythons_are(module: skep.Module) -> None:
    flows, few = module.maps["flows"], module.maps["few"]
    with pytest.raises(OverflowError, match=r"value of flows\.score: 2147483648 does not fit"):
        flows[KEY] = {"score": 1 << 31}
    with pytest.raises(OverflowError, match="does not fit 64 bits"):
        few[1] = 1 << 64
    with pytest.raises(OverflowError, match=r"-1 does not fit"):
        few[-1] = 0
    with pytest.raises(TypeError, match="expected a number"):
        few[1] = [1]
    with pytest.raises(TypeError, match="expected an object with the members of struct flow"):
        flows[KEY] = 5
    with pytest.raises(TypeError, match="members of a structure have names"):
        flows[KEY] = {1: 2}
    with pytest.raises(TypeError, match="found set"):
        few[1] = {1}
    with pytest.raises(ValueError, match="has no member sore; it has packets, score"):
        flows[KEY] = {"sore": 1}
    with pytest.raises(ValueError, match="such as STATE_NEW"):
        flows[KEY] = {"state": "STATE_NONE"}
    with pytest.raises(skep.DataError) as caught:
        flows[{"address": [1, 2, 3, 999]}] = {}
    assert caught.value.path == "key of flows.address[3]"
    assert len(flows) == len(few) == 0


def test_hash_tables_are_mutable_mappings(module: skep.Module) -> None:
    few = module.maps["few"]
    assert isinstance(few, MutableMapping)
    few.update({1: 10, 2: 20})
    few[3] = 30
    assert 1 in few and 9 not in few
    assert few.get(9) is None and few.get(9, 7) == 7
    with pytest.raises(KeyError) as caught:
        few[9]
    assert caught.value.args == (9,)
    assert sorted(few.items()) == [(1, 10), (2, 20), (3, 30)]
    assert sorted(few) == sorted(few.keys()) == [1, 2, 3]
    assert sorted(few.values()) == [10, 20, 30]
    assert few == {1: 10, 2: 20, 3: 30} == module.maps["few"].to_dict()
    assert few.pop(1) == 10 and few.pop(1, None) is None
    with pytest.raises(KeyError):
        few.pop(1)
    with pytest.raises(KeyError):
        del few[1]
    assert few.setdefault(2, 99) == 20 and few.setdefault(4, 40) == 40
    assert few.popitem() in [(2, 20), (3, 30), (4, 40)]
    assert len(few) == 2
    few.clear()
    assert len(few) == 0 and not few
    with pytest.raises(KeyError, match="map 'few' is empty"):
        few.popitem()


def test_a_full_table_says_so(module: skep.Module) -> None:
    few = module.maps["few"]
    few.update(dict.fromkeys(range(4), 0))
    with pytest.raises(skep.MapFullError, match="the map is full") as caught:
        few[9] = 9
    assert caught.value.errno == 7
    few[3] = 3


def test_iterations_are_over_what_was_there(module: skep.Module) -> None:
    few = module.maps["few"]
    few.update({1: 10, 2: 20})
    for key in few:
        del few[key]
    assert len(few) == 0


def test_arrays_keep_their_elements(module: skep.Module) -> None:
    numbers = module.maps["numbers"]
    numbers[3] = -7
    assert list(numbers.items()) == [(0, 0), (1, 0), (2, 0), (3, -7)]
    assert len(numbers) == 4
    text = r"index 7 is out of range for array 'numbers' \(4 entries\)"
    with pytest.raises(KeyError, match=text):
        numbers[7]
    with pytest.raises(KeyError, match="index 7 is out of range"):
        numbers[7] = 1
    assert numbers.get(7) is None and 7 not in numbers
    removes: list[Callable[[], object]] = [numbers.clear, numbers.popitem, lambda: numbers.pop(1)]
    removes.append(lambda: operator.delitem(numbers, 1))
    for remove in removes:
        with pytest.raises(TypeError, match="assign to them"):
            remove()
    with pytest.raises(OverflowError):
        numbers[0] = 40000


def test_per_cpu_values_have_a_sum(module: skep.Module) -> None:
    totals, per_cpu = module.maps["totals"], module.maps["per_cpu"]
    module.programs["count"].run(PACKET, repeat=3)
    assert isinstance(totals[0], skep.PerCpu) and len(totals[0]) == 4
    assert totals[0].total() == {"number": 3, "length": 360}
    per_cpu[1] = 5
    assert per_cpu[1] == (5, 5, 5, 5) and per_cpu[1].total() == 20
    per_cpu[1] = skep.PerCpu([1, 2])
    assert per_cpu[1] == (1, 2, 0, 0)
    with pytest.raises(ValueError, match="5 values, but there are 4 virtual CPUs"):
        per_cpu[1] = skep.PerCpu([1] * 5)
    assert per_cpu.pop(1).total() == 3
    assert repr(skep.PerCpu([1])) == "PerCpu([1])"


def test_tries_take_networks(module: skep.Module) -> None:
    routes = module.maps["routes"]
    routes["10.0.0.0/8"] = 1
    routes[ipaddress.ip_network("10.1.0.0/16")] = 2
    routes[{"bits": 24, "address": [10, 1, 2, 0]}] = 3
    assert routes["10.1.2.3"] == 3
    assert routes[ipaddress.ip_address("10.1.9.9")] == 2
    assert routes["10.200.0.0/16"] == 1
    assert "192.0.2.1" not in routes
    assert {str(routes.network(key)): value for key, value in routes.items()} == {
        "10.0.0.0/8": 1,
        "10.1.0.0/16": 2,
        "10.1.2.0/24": 3,
    }
    del routes["10.1.2.0/24"]
    assert routes["10.1.2.3"] == 2
    assert routes.pop("10.1.0.0/16") == 2
    with pytest.raises(KeyError):
        routes.pop("10.1.0.0/16")
    with pytest.raises(ValueError, match="keys of 'routes' have 4 bytes"):
        routes["2001:db8::/32"] = 1


def test_queues_and_stacks(module: skep.Module) -> None:
    jobs, undo = module.maps["jobs"], module.maps["undo"]
    jobs.extend([{"number": 1}, {"number": 2}])
    undo.extend([1, 2])
    assert len(jobs) == 2 and jobs.peek() == {"number": 1, "length": 0}
    assert jobs.pop()["number"] == 1 and jobs.pop()["number"] == 2
    assert undo.pop() == 2 and undo.pop() == 1
    with pytest.raises(IndexError, match="pop from queue 'jobs', which is empty"):
        jobs.pop()
    assert undo.peek() is None and not undo
    undo.extend(range(4))
    with pytest.raises(skep.MapFullError):
        undo.push(4)
    undo.push(4, replace=True)
    assert undo.pop() == 4


def test_filters_remember(module: skep.Module) -> None:
    seen = module.maps["seen_before"]
    seen.add(5)
    assert 5 in seen


def test_maps_are_shared_and_taken_over() -> None:
    runtime = skep.Runtime(cpus=4)
    old = runtime.load(OBJECT)
    old.maps["few"][1] = 10
    new = runtime.load(OBJECT, reuse_maps=old, fresh_maps=["recent"])
    assert new.maps["few"][1] == 10
    assert new.maps["few"].is_same(old.maps["few"])
    assert not new.maps["recent"].is_same(old.maps["recent"])
    other = runtime.load(OBJECT, maps={"few": old.maps["few"]}, max_entries={"recent": 8})
    assert other.maps["few"][1] == 10 and other.maps["recent"].max_entries == 8


def test_names_are_precise(module: skep.Module) -> None:
    with pytest.raises(KeyError) as caught:
        module.maps["flow"]
    error = caught.value
    assert isinstance(error, skep.UnknownNameError)
    assert str(error).startswith("there is no map 'flow'; there are: stages, totals, ")
    assert str(error).endswith("did you mean 'flows'?")
    assert (error.what, error.name) == ("map", "flow") and "few" in error.known
    assert module.maps.get("flow") is None
    assert ".rodata" not in module.maps and ".bss" not in module.maps
    assert repr(module.maps["few"]) == "<skep.HashMap 'few' (hash, 4 entries)>"
    assert repr(module).startswith("<skep.Module programs: leaf, count, ")


def test_keys_are_dictionaries_with_a_hash() -> None:
    key = skep.Key({"a": [1, {"b": 2}]})
    assert key == {"a": [1, {"b": 2}]} and key == skep.Key({"a": (1, {"b": 2})})
    assert key != {"a": [1]} and key != 5
    assert hash(key) == hash(skep.Key({"a": (1, {"b": 2})}))
    assert dict(key)["a"][1]["b"] == 2
    changes: list[Callable[[], object]] = [key.clear, key.popitem, lambda: key.update(a=1), lambda: key.pop("a")]
    for change in changes:
        with pytest.raises(TypeError):
            change()


def test_variables_are_a_mapping(module: skep.Module) -> None:
    variables = module.variables
    assert variables["balance"] == -5 and variables["greeting"] == "hello"
    variables["limit"] = 2
    verdicts = [module.programs["count"].run(PACKET).verdict.name for _ in range(3)]
    assert verdicts == ["pass", "pass", "drop"]
    variables["last"] = {"address": [1, 2, 3, 4], "port": 9}
    assert variables["last"]["port"] == 9
    assert variables.constants >= {"scale", "greeting"} and "limit" not in variables.constants
    with pytest.raises(ValueError, match="scale is a constant"):
        variables["scale"] = 3
    with pytest.raises(OverflowError):
        variables["limit"] = -1
    with pytest.raises(KeyError, match="no variable 'limits'.*did you mean 'limit'"):
        variables["limits"] = 1
    assert "limit" in variables and len(variables) == len(list(variables)) and "seen" in list(variables)


def test_constants_are_given_to_the_load() -> None:
    module = skep.load(OBJECT, variables={"scale": 10, "greeting": "bye"})
    module.programs["count"].run(PACKET)
    assert module.variables["greeting"] == "bye"
    assert module.maps["totals"][0].total()["length"] == 600
    with pytest.raises(OverflowError, match="scale: 4294967296 does not fit"):
        skep.load(OBJECT, variables={"scale": 1 << 32})
    with pytest.raises(skep.UnknownNameError, match="there is no variable"):
        skep.load(OBJECT, variables={"scales": 1})


def test_values_are_coded_by_type(module: skep.Module) -> None:
    data = module.encode("struct event", {"number": 1, "length": 2})
    assert data == b"\1\0\0\0\2\0\0\0"
    assert module.decode("event", data) == {"number": 1, "length": 2}
    with pytest.raises(TypeError, match="no type 'struct missing'"):
        module.decode("struct missing", b"")
    with pytest.raises(ValueError, match="struct event has 8 bytes, 3 were given"):
        module.decode("struct event", b"123")


class Meddler:
    """A map to which somebody else does something after each operation: the worst order of two threads."""

    def __init__(self, native: Any, act: Callable[[Any], object]) -> None:
        self._native = native
        self._act = act

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._native, name)
        if not callable(operation):
            return operation

        def operate(*arguments: object, **options: object) -> object:
            result = operation(*arguments, **options)
            self._act(self._native)
            return result

        return operate

    def __len__(self) -> int:
        return len(self._native)


def test_an_element_is_popped_once(module: skep.Module) -> None:
    few = module.maps["few"]
    pops: list[Callable[[], object]] = [lambda: few.pop(1, None), lambda: few.popitem()[1]]
    for pop in pops:
        others: list[object] = []
        few[1] = 10

        def take(map: Any, to: list[object] = others) -> None:
            to.append(map.take(1))

        native, few._native = few._native, Meddler(few._native, take)
        try:
            popped = pop()
        except KeyError:
            popped = None
        few._native = native
        assert [popped, *others].count(10) == 1


def test_a_default_does_not_replace_what_another_has_set(module: skep.Module) -> None:
    few = module.maps["few"]
    native, few._native = few._native, Meddler(few._native, lambda map: map.set(1, 77, flags=1))
    assert few.setdefault(1, 5) == 77
    few._native = native
    assert few[1] == 77


def test_iterations_do_not_miss_what_others_remove(module: skep.Module) -> None:
    few = module.maps["few"]
    for iterate in (lambda: dict(few.items()), lambda: sorted(few.values()), lambda: sorted(few), few.to_dict):
        few.update({1: 10, 2: 20})
        native, few._native = few._native, Meddler(few._native, lambda map: (map.delete(1), map.delete(2)))
        assert len(iterate()) == 2
        few._native = native
