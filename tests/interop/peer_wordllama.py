"""wordllama and numpy in an environment of their own: search by meaning as it is when the extra is installed."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

from installing import REPOSITORY, Tool, install_package, run
from installing import install as install_with
from judging import Judge
from sample import Bench

_TESTS = ("tests/memory/test_semantic.py", "tests/memory/test_erase_vectors.py")
_SECONDS = 240
_BLIND = "from memory import vectors\nvectors.nearest = lambda query, rows: {}\n"


def install(folder: Path) -> Tool:
    """The extra beside what this interpreter has: all else is the same as in the default suite."""
    place = folder / "environment"
    install_with([sys.executable, "-m", "venv", "--clear", str(place)], "an environment for wordllama")
    install_package(place, "numpy>=1.26", "wordllama>=0.3.9")
    python = place / "bin" / "python"
    own = run([str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]).strip()
    (Path(own) / "zz_beside.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", "utf-8")
    say = "from importlib.metadata import version; print(version('wordllama'))"
    return Tool(python, run([str(python), "-c", say]).strip())


def check_tests(bench: Bench, judge: Judge) -> None:
    """The tests of search by meaning run, each of them, and fail where nearness is not told."""
    bench.write("blind.py", _BLIND)
    code, told = _pytest(bench)
    blind, _ = _pytest(bench, "-p", "blind")
    judge.story(
        "the tests of search by meaning pass with wordllama, none skipped",
        {"they pass": code == 0, "none is skipped": "skipped" not in told},
        {"nearness that is always nothing": blind == 1},
    )


def check_recall(bench: Bench, judge: Judge) -> None:
    """What is asked in other words is found more often with vectors, and not with those of other facts."""
    script = Path(__file__).resolve().parent / "semanticcheck.py"
    found = json.loads(run([str(bench.tool), str(script), str(bench.folder / "home")], timeout=_SECONDS))
    judge.story(
        f"R@10 of notes asked for otherwise is {found['words']:.2f} by words, {found['meaning']:.2f} by meaning too",
        {"four tenths more at least": found["meaning"] >= found["words"] + 0.4},
        {
            f"each fact with the vector of another, {found['mixed']:.2f}": found["mixed"]
            < found["meaning"] - 0.4
        },
    )


def _pytest(bench: Bench, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(bench.tool), "-m", "pytest", "-p", "no:cacheprovider", *options, *_TESTS],
        cwd=REPOSITORY,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(bench.folder), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    return done.returncode, done.stdout


CHECKS = (check_tests, check_recall)
