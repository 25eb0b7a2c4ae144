"""Our adapters beside what they stand in for: the stores of LangGraph and the Agents SDK, the tool of Claude's SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from installing import REPOSITORY, Tool, environment, install_package, run
from judging import Judge
from sample import Bench

LANGGRAPH, AGENTS, CLAUDE = "langgraph-checkpoint==4.3.2", "openai-agents==0.24.0", "anthropic==2.14.0"


def install(folder: Path) -> Tool:
    """All three in one environment; ours are read from the project."""
    programs = environment(folder, LANGGRAPH)
    install_package(programs.parent, AGENTS)
    install_package(programs.parent, CLAUDE)
    place = run([str(programs / "python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    return Tool(Path(place.strip()), ", ".join(one.replace("==", " ") for one in (LANGGRAPH, AGENTS, CLAUDE)))


def _asked(bench: Bench, which: str) -> dict[str, Any]:
    """What both sides answer to the same steps: {"theirs": […], "ours": […], "broken": […]}."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("adaptercheck.py")), which, str(bench.folder / which)],
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{bench.tool}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        raise RuntimeError(f"adaptercheck {which} ended with {done.returncode}: {done.stderr[-1500:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _check(which: str, claim: str) -> Any:
    def check(bench: Bench, judge: Judge) -> None:
        said = _asked(bench, which)
        same = {
            f"step {number}: {step}": theirs == ours
            for number, (step, theirs, ours) in enumerate(
                zip(said["steps"], said["theirs"], said["ours"], strict=True), 1
            )
        }
        judge.story(
            claim,
            same or {"no step": False},
            {"answers of a store that forgets one write": said["broken"] != said["theirs"]},
        )

    check.__name__ = f"check_{which}"
    check.__doc__ = claim
    return check


CHECKS = (
    _check("langgraph", "our store answers as LangGraph's InMemoryStore does, step by step"),
    _check("agents", "our session answers as the Agents SDK's SQLiteSession does, step by step"),
    _check("claude", "our memory tool answers as the file tool of Claude's SDK does, step by step"),
)
