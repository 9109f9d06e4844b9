"""A home folder of its own for each test, and a stand-in for ssh."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusterrecords import script


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("my home")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return folder


# Stands in for ssh: runs what would run there, here.
STAND_IN = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    return script(tmp_path / "ssh stand-in", STAND_IN)
