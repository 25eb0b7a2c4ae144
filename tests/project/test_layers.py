"""Imports go one way, pure modules stay pure, and a plain command loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("tlog", "witness", "memory", "auditor")
ALLOWED = {
    "tlog": {"tlog"},
    "witness": {"witness", "tlog"},
    "memory": {"memory", "witness", "tlog"},
    "auditor": {"auditor", "witness", "tlog"},
}
AUDITOR_TAKES = {"memory.event"}
PURE = {
    "tlog": "errors ascii merkle tile note checkpoint cosignature policy certificates trust trust_text cbor cose"
    " cose_keys bulk_signatures statement receipt succession proof claims logged verify bundles reports",
    "witness": "decide wire subtree loglist marker records compare",
    "memory": "canon canon_dates canon_names canon_numbers canon_spans canon_text canon_types canon_units"
    " model event event_written guard admission allow quarantine quarantine_tongues timeline chain home_names manifest"
    " opening denial other_things import_jsonl import_report import_graph import_mem0 import_notes import_chats"
    " mcp_lines mcp_tools provenance_text diagnosis json_documents http_routes http_schemas http_paging"
    " http_route http_erasure_routes json_comments"
    " mcp_arguments mcp_ask mcp_cursor mcp_view rank rank_newer search_forms vectors pg_dialect",
    "auditor": "checks encodings erasure erasure_states pg_pages manifest_heads manifests report exhibits page_map"
    " report_html report_cards report_svg"
    " report_style report_words report_cose states monitor",
}
IMPURE = {
    "sqlite3",
    "apsw",
    "socket",
    "http",
    "httpx",
    "urllib",
    "os",
    "pathlib",
    "time",
    "random",
    "secrets",
    "threading",
    "subprocess",
    "tempfile",
    "shutil",
}
HEAVY = {
    "mcp",
    "fastapi",
    "starlette",
    "uvicorn",
    "pydantic",
    "numpy",
    "pycose",
    "httpx",
    "ahocorasick_rs",
    "anyio",
    "nacl",
}


def run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but those below `if TYPE_CHECKING`: a type that is only named is not depended on."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from run_time_nodes(node)


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports when it runs, wherever in the file, with the names taken from it."""
    found: set[str] = set()
    for node in run_time_nodes(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def modules(package: str) -> list[Path]:
    return sorted((REPOSITORY / package).glob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package: str) -> None:
    for path in modules(package):
        place = path.relative_to(REPOSITORY).as_posix()
        for name in imports_of(path):
            top = name.split(".")[0]
            if top not in PACKAGES or top in ALLOWED[package]:
                continue
            taken = any(name == one or name.startswith(one + ".") for one in AUDITOR_TAKES)
            if package == "auditor" and (taken or name == "memory"):
                continue
            pytest.fail(f"{place} imports {name}")


@pytest.mark.parametrize("package", PACKAGES)
def test_pure_modules_import_no_edge(package: str) -> None:
    for stem in PURE[package].split():
        path = REPOSITORY / package / f"{stem}.py"
        tops = {name.split(".")[0] for name in imports_of(path)}
        assert not tops & IMPURE, f"{package}/{stem}.py imports {sorted(tops & IMPURE)}"


def test_no_module_is_longer_than_its_limit() -> None:
    long = {
        path.relative_to(REPOSITORY).as_posix(): lines
        for package in PACKAGES
        for path in modules(package)
        if (lines := len(path.read_text("utf-8").splitlines())) > 400
    }
    assert not long, f"expected at most 400 lines a module: {long}"


def loaded_by(*arguments: str) -> set[str]:
    code = (
        "import sys\nfrom memory.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        timeout=60,
    )
    return set(done.stderr.split())


def test_a_plain_command_loads_nothing_heavy(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    for command in (
        ["remember", "the sky is blue", "--key", "sky/colour", "--value", "blue", "--home", home],
        ["get", "sky/colour", "--home", home],
        ["recall", "sky", "--home", home],
    ):
        loaded = loaded_by(*command)
        assert "memory.service" in loaded, "the command did not run, so the check would prove nothing"
        assert not loaded & HEAVY, sorted(loaded & HEAVY)


def test_the_check_of_heavy_imports_can_fail() -> None:
    code = "import sys, httpx; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert set(done.stdout.split()) & HEAVY
