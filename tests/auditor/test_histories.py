"""No false alarm: whatever callers may do, an audit of the home that they leave is clean."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from histories import make_history

from auditor.audit import Places, audit
from auditor.evidence import Asked
from tlog.trust import parse_trust


@pytest.mark.parametrize("seed", range(20))
def test_a_random_history_is_clean(tmp_path: Path, seed: int) -> None:
    done = make_history(tmp_path / "home", seed, 60)
    asked = Asked(parse_trust((tmp_path / "home" / "trust.toml").read_text()), time.time_ns() // 1000)
    audited = audit(Places(tmp_path / "home"), asked, tenant=None, needles=None)
    assert audited.outcome.findings == (), done
    assert audited.outcome.counts["statements"] > 10
