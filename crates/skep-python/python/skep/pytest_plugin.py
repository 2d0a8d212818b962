"""Fixtures of pytest. They are there once the package is installed."""

import pathlib

import pytest

import skep


@pytest.fixture
def bpf_load(request):
    """Loads objects, whose paths are relative to the test's file, each time into a runtime of their own."""
    folder = pathlib.Path(request.path).parent

    def load(source, **options):
        if not isinstance(source, bytes):
            source = folder / source
        return skep.load(source, **options)

    return load


@pytest.fixture
def bpf_world(request):
    """Makes worlds from TOML texts, or from files whose paths are relative to the test's file."""
    folder = pathlib.Path(request.path).parent

    def world(source):
        is_text = "\n" in source or not source.endswith(".toml")
        return skep.World(source) if is_text else skep.World.open(folder / source)

    return world
