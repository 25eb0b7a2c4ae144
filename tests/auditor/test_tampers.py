"""Every change of the catalogue raises its finding, on a copy of a home that is clean as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tamper_catalogue import CATALOGUE, Tamper
from tamper_fourth import FOURTH
from tamper_keys import MORE
from tamper_third import THIRD

EVERY = (*CATALOGUE, *MORE, *THIRD, *FOURTH)


@pytest.mark.parametrize("tamper", EVERY, ids=[tamper.name for tamper in EVERY])
def test_a_single_change_raises_its_finding(copy: Any, tmp_path_factory: Any, tamper: Tamper) -> None:
    folder: Path = tmp_path_factory.mktemp("beside")
    options = tamper.make(copy, folder) or {}
    found = copy.audit(**options).outcome.findings
    assert tamper.code in {finding.code for finding in found}, found
    assert all(finding.what and finding.where and finding.severity for finding in found)


def test_the_catalogue_is_long_and_says_each_thing_once() -> None:
    assert len(CATALOGUE) >= 60
    assert len(EVERY) >= 250
    assert len({tamper.name for tamper in EVERY}) == len(EVERY)
    assert sum(tamper.name.startswith("keys: ") for tamper in EVERY) >= 60
