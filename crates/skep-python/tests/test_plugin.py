"""The plugin of pytest, and the programs of the README."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from conftest import EXAMPLES, OBJECT

README = Path(__file__).parents[1] / "README.md"


def code(number: int) -> str:
    """A block of Python in the README."""
    return str(re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[number])


def test_ten_lines_test_an_xdp_program(pytester: pytest.Pytester) -> None:
    pytest.importorskip("scapy")
    text = code(0)
    assert len([line for line in text.splitlines() if line.strip()]) <= 10
    shutil.copy(EXAMPLES / "firewall.bpf.o", pytester.path)
    pytester.makepyfile(test_firewall=text)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines("skep: *")


def test_the_other_example_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    names: dict[str, object] = {}
    exec(code(1), names)
    blocked = names["blocked"]
    assert {str(blocked.network(key)) for key in blocked} == {"198.18.0.0/15"}  # type: ignore[attr-defined]


def test_fixtures_and_marks(pytester: pytest.Pytester) -> None:
    shutil.copy(OBJECT, pytester.path)
    shutil.copy(EXAMPLES / "network.toml", pytester.path)
    pytester.makepyfile(
        """
        import pytest
        import skep

        @pytest.mark.skep(cpus=3)
        class TestMarks:
            def test_of_the_class(self, skep_runtime):
                assert skep_runtime.cpus == 3

            @pytest.mark.skep(cpus=5)
            def test_of_the_test(self, skep_runtime):
                assert skep_runtime.cpus == 5

        def test_load(skep_load, skep_runtime):
            one, other = skep_load("all.bpf.o"), skep_load("all.bpf.o", max_entries={"few": 8})
            assert other.maps["few"].max_entries == 8

        def test_missing(skep_load):
            with pytest.raises(FileNotFoundError, match="no object 'none.bpf.o'; looked for .*none.bpf.o"):
                skep_load("none.bpf.o")

        class TestWorld:
            @pytest.fixture
            def skep_world(self):
                return skep.World.open("network.toml")

            def test_world(self, skep_load, skep_world, skep_runtime):
                module = skep_load("all.bpf.o")
                with skep_world.attach(module.programs["count"], "eth0"):
                    assert len(skep_world.inject(bytes(60)).hops) == 1
                assert skep_runtime.world is skep_world
        """
    )
    pytester.runpytest_subprocess("--strict-markers").assert_outcomes(passed=5)
