"""Shell completion: the scripts complete what the parsers know, in the shells that are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from memory import cli, completion


def completed(script: Path, *words: str) -> set[str]:
    """What bash offers for the last of these words."""
    line = " ".join(f"'{word}'" for word in words)
    code = (
        f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _muniment; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, timeout=20)
    assert not done.stderr
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "muniment.bash"
    path.write_text(completion.make_script("bash"), "utf-8")
    return path


def test_bash_completes(bash_script: Path) -> None:
    assert completed(bash_script, "muniment", "") == set(cli.COMMANDS)
    assert completed(bash_script, "muniment", "rec") == {"recall", "receipt"}
    assert {"--key", "--value", "--home"} <= completed(bash_script, "muniment", "remember", "a text", "--")
    assert {"publish", "serve"} <= completed(bash_script, "muniment", "log", "")
    assert {"--trust"} <= completed(bash_script, "muniment", "audit", "--tr")
    assert completed(bash_script, "muniment", "install", "cl") == {"claude-code", "claude-desktop"}
    assert "sign" in completed(bash_script, "muniment", "log", "root", "")


def test_every_command_is_known() -> None:
    known = {one.path: one for one in completion.known_commands()}
    assert set(cli.COMMANDS) <= set(known)
    for name in cli.COMMANDS:
        assert known[name].commands or any(option == "--json" for option, _ in known[name].options), name


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_shell_takes_its_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out, "utf-8")
    found = shutil.which(shell)
    if found is None:
        assert "muniment" in script.read_text("utf-8")
        return
    done = subprocess.run([found, "-n", str(script)], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0, done.stderr
