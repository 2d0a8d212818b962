"""Refusals and other errors, as data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from conftest import EXAMPLES, OBJECT, ROOT

import skep

REFUSED = ROOT / "crates/skep-cli/tests/objects/unchecked_packet.bpf.o"


def test_a_refusal_has_its_reason_and_its_path() -> None:
    with pytest.raises(skep.VerifierError) as caught:
        skep.load(REFUSED)
    error = caught.value
    assert error.program == "hasty"
    assert error.code == "out-of-bounds"
    assert "r1 + 0xc" in error.instruction and error.slot >= 0
    assert error.file is not None and str(error.file).endswith("unchecked_packet.bpf.c")
    assert error.line == 11 and "data[12]" in (error.source or "")
    assert error.reason and error.reason in str(error)
    assert error.remedy and error.remedy in str(error)
    assert error.linux
    assert error.path and all(isinstance(step, skep.Step) for step in error.path)
    assert error.path[-1].why in error.explain()
    assert isinstance(error, skep.SkepError)


def test_what_is_refused_can_be_left_out() -> None:
    module = skep.load(REFUSED, programs=["patient"])
    assert list(module.programs) == ["patient"]
    with pytest.raises(TypeError, match=r"write \['patient'\]"):
        skep.load(REFUSED, programs="patient")
    with pytest.raises(skep.UnknownNameError, match="there is no program"):
        skep.load(REFUSED, programs=["other"])


def test_verification_alone() -> None:
    proofs = skep.verify(EXAMPLES / "firewall.bpf.o", log=True)
    (proof,) = proofs
    assert (proof.program, proof.type) == ("firewall", "xdp")
    assert proof.walked > 100 and len(proof.log) > 100
    assert skep.verify(OBJECT.read_bytes(), program="count")[0].log == []
    with pytest.raises(skep.VerifierError):
        skep.verify(REFUSED)
    with pytest.raises(ValueError, match="no program type 'xpd'; there are: "):
        skep.verify(OBJECT, type="xpd")


def test_what_is_no_object_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        skep.load(tmp_path / "missing.bpf.o")
    text = tmp_path / "text.bpf.o"
    text.write_text("text")
    for load in (skep.load, skep.verify):
        with pytest.raises(skep.ObjectError, match="text.bpf.o: "):
            load(text)
    with pytest.raises(ValueError):
        skep.load(b"text")
    with pytest.raises(TypeError):
        skep.load(5)  # type: ignore[arg-type]


def test_a_quota_is_kept() -> None:
    tenant = skep.Tenant("acme", maps=3)
    with pytest.raises(skep.QuotaError) as caught:
        skep.Runtime().load(OBJECT, tenant=tenant)
    error = caught.value
    assert (error.tenant, error.limit) == ("acme", 3)
    assert error.used + error.wanted > 3
    tenant.set_limit("maps", None)
    module = skep.Runtime().load(OBJECT, tenant=tenant)
    assert tenant.usage["maps"].used > 3 and tenant.usage["maps"].limit is None
    assert tenant.usage["maps"].refused > 0
    assert tenant.usage["programs"].used == len(module.programs)
    with pytest.raises(ValueError, match="no limit 'map'; there are: map_memory, maps"):
        tenant.set_limit("map", 1)


def test_settings_are_checked() -> None:
    with pytest.raises(skep.SkepError):
        skep.Runtime(cpus=0)
    with pytest.raises(TypeError):
        skep.Runtime(cpu=4)  # type: ignore[call-arg]
    with pytest.raises(OverflowError, match="^cpus: "):
        skep.Runtime(cpus=-1)
    with pytest.raises(TypeError, match="^map_memory: "):
        skep.Runtime(map_memory="much")  # type: ignore[arg-type]
    with pytest.raises(OverflowError, match="^max_entries: "):
        skep.load(OBJECT, max_entries={"few": 1 << 32})
    with pytest.raises(ValueError):
        skep.Runtime(clock_granularity=-1.0)
    assert skep.Runtime(cpus=3).cpus == 3
    assert repr(skep.Runtime(cpus=3)) == "<skep.Runtime with 3 virtual CPUs>"


def test_assembler_is_checked() -> None:
    with pytest.raises(ValueError):
        skep.Runtime().assemble("r0 = = 1")
    with pytest.raises(skep.VerifierError, match="r0"):
        skep.Runtime().assemble("exit")


def test_all_errors_have_one_base() -> None:
    errors = [value for value in vars(skep).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(errors) == 18
    assert all(issubclass(error, skep.SkepError) for error in errors)


def test_an_empty_list_of_programs_is_an_error() -> None:
    nothing: list[Iterable[str]] = [[], (), iter(())]
    for names in nothing:
        with pytest.raises(ValueError, match="programs is empty: name at least one, or leave it out to load all"):
            skep.Runtime(cpus=1).load(OBJECT, programs=names)
