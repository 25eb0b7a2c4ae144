"""What lies in the folder of earlier audits is read without waiting for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from auditor.state import load_bytes
from tlog.errors import MalformedError


def test_a_pipe_in_the_folder_of_earlier_audits_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "head.checkpoint")
    with pytest.raises(MalformedError, match="no pipes"):
        load_bytes(tmp_path / "head.checkpoint")
    (tmp_path / "other").write_bytes(b"one")
    assert (load_bytes(tmp_path / "other"), load_bytes(tmp_path / "none")) == (b"one", None)
