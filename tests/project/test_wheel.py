"""The built wheel: its top-level names are the four packages, and what they read at run time is inside."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PACKAGES = {"memory", "tlog", "witness", "auditor"}


def test_wheel_holds_the_four_packages(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)
    for name in (*PACKAGES, "examples"):
        shutil.copytree(
            REPOSITORY / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            str(tmp_path / "dist"),
            str(source),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    for needed in (
        "memory/schema.sql",
        "memory/team-week.jsonl",
        *(f"{package}/py.typed" for package in PACKAGES),
    ):
        assert needed in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
