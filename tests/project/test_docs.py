"""The documents are held against the code: their bytes, their lists, their links, and the commands of the README."""

from __future__ import annotations

import ast
import hmac
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from importlib import resources
from pathlib import Path

import apsw
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import format_examples

from memory import event, manifest, manifest_fields
from memory.cli import COMMANDS
from memory.config import Config, parse_config
from memory.model import parse_fact_id
from memory.opening import open_with, parse_opening
from tlog import statement, trust
from tlog.checkpoint import parse_checkpoint
from tlog.cose import CoseKey, decode_key
from tlog.merkle import Frontier, leaf_hash
from tlog.note import parse_note, parse_vkey
from tlog.policy import parse_policy, verify_checkpoint
from tlog.proof import parse_proof, verify_proof
from tlog.receipt import split_transparent, verify_receipt
from tlog.tile import decode_bundle
from tlog.trust import parse_trust
from witness.wire import parse_add_checkpoint, parse_conflict, parse_cosignatures

REPOSITORY = Path(__file__).resolve().parent.parent.parent
DOCS = REPOSITORY / "docs"
ARCHITECTURE = DOCS / "ARCHITECTURE.md"
STORE = DOCS / "formats" / "store.md"
HOME = DOCS / "formats" / "home.md"
PACKAGES = ("tlog", "witness", "memory", "auditor")
PAGES = sorted([REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *DOCS.rglob("*.md")])


# The worked examples


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    return {name: text for name, (_, text) in format_examples.blocks().items()}


def test_each_example_is_what_the_code_makes(shown: dict[str, str]) -> None:
    made = format_examples.examples()
    assert shown.keys() == made.keys()
    differ = [name for name in made if made[name] != shown[name]]
    assert not differ, f"read what changed, then run tests/project/format_examples.py: {differ}"


def test_no_block_of_hexadecimal_goes_unchecked() -> None:
    for path in sorted((DOCS / "formats").glob("*.md")):
        fences = re.findall(r"^```(.*)$", path.read_text("utf-8"), re.MULTILINE)[::2]
        assert all(" " in fence for fence in fences), f"{path.name} has a block without a name"


def bytes_of(shown: dict[str, str], name: str) -> bytes:
    return bytes.fromhex(shown[name].replace("\n", ""))


def key_for(shown: dict[str, str], use: str) -> CoseKey:
    (found,) = [one.key for one in parse_trust(shown["trust.file"]).keys if one.use == use]
    return found


def test_the_statement_opens_and_is_signed(shown: dict[str, str]) -> None:
    entry, commitment = bytes_of(shown, "statement.entry"), bytes_of(shown, "statement.c")
    key = decode_key(bytes_of(shown, "statement.issuer-key-hex"))
    assert key == key_for(shown, "issuer")
    assert statement.verify_statement(entry, key).payload_hash == commitment
    link, content = bytes_of(shown, "statement.link-hex"), bytes_of(shown, "statement.content-hex")
    salts = bytes_of(shown, "statement.link-salt"), bytes_of(shown, "statement.content-salt")
    event.open_content(commitment, link, salts[0], content, salts[1])
    halves = bytes_of(shown, "statement.l"), bytes_of(shown, "statement.k")
    assert event.commitment(*halves) == commitment
    assert parse_fact_id(shown["statement.id"].strip()) == commitment[:16]
    assert leaf_hash(entry) == bytes_of(shown, "statement.leaf-hash")


def test_receipt_and_proof_hold(shown: dict[str, str]) -> None:
    entry = bytes_of(shown, "statement.entry")
    carried, (receipt,) = split_transparent(bytes_of(shown, "receipt.transparent"))
    assert (carried, receipt) == (entry, bytes_of(shown, "receipt.hex"))
    verified = verify_receipt(receipt, entry, key_for(shown, "receipt"))
    assert (verified.index, verified.size, verified.size_signed) == (1, 6, True)
    policy = parse_policy(shown["trust.policy"])
    assert verify_checkpoint(policy, verified.checkpoint or b"").checkpoint.root == verified.root
    proof = parse_proof(shown["tlog-proof.file"].encode())
    assert proof.extra == entry
    assert verify_proof(proof, entry, policy).witnesses == ("w1",)


def test_the_log_is_one_log(shown: dict[str, str]) -> None:
    checkpoint = verify_checkpoint(parse_policy(shown["trust.policy"]), shown["log.checkpoint"].encode())
    assert parse_vkey(shown["log.vkey"].strip()) == checkpoint.log_key
    entries = decode_bundle(bytes_of(shown, "log.bundle"), 4)
    assert entries[1] == bytes_of(shown, "statement.entry")
    tile = bytes_of(shown, "log.tile")
    leaves = [tile[at : at + 32] for at in range(0, len(tile), 32)]
    assert leaves[:4] == [leaf_hash(entry) for entry in entries]
    assert Frontier().extend(leaves).root() == checkpoint.checkpoint.root
    assert parse_checkpoint(shown["log.head"]) == checkpoint.checkpoint


def test_the_manifest_is_signed_and_its_digest_is_logged(shown: dict[str, str]) -> None:
    data = bytes_of(shown, "manifest.hex")
    found = manifest.verify_manifest(data, key_for(shown, "manifest"))
    assert found.digest == bytes_of(shown, "manifest.digest")
    assert f"h'{found.digest.hex()}'" in shown["statement.link-manifest"]
    assert bytes_of(shown, "statement.c") in found.tombstone.targets
    assert (found.number, found.state) == (1, "closed_complete")


def test_the_opening_opens(shown: dict[str, str]) -> None:
    data = shown["opening.file"].encode()
    assert parse_opening(data)["commitment"] == bytes_of(shown, "statement.c")
    assert open_with(data, bytes_of(shown, "statement.c"))["content"]["value"] == "eu-west-1"


def test_the_keyed_hash_is_that_of_the_ledger(shown: dict[str, str]) -> None:
    key, hashed = bytes_of(shown, "store.tag-key"), bytes_of(shown, "store.tag-input-hex")
    tag = hmac.digest(key, hashed, "sha256")
    assert tag == bytes_of(shown, "store.tag")
    assert f"value_tag      x'{tag.hex()}'" in shown["store.ledger"]


def test_what_a_witness_says_is_read_back(shown: dict[str, str]) -> None:
    request = parse_add_checkpoint(shown["witness.request"].encode())
    assert (request.old_size, request.checkpoint.size) == (4, 6)
    (line,) = parse_cosignatures(shown["witness.answer"].encode())
    assert line in parse_note(shown["witness.checkpoint"].encode()).signatures
    assert parse_conflict("text/x.tlog.size", shown["witness.conflict"].encode()) == 6
    origin = request.checkpoint.origin
    assert shown["witness.path"] == f"/{sha256(origin.encode()).hexdigest()}/checkpoint\n"
    assert parse_config(shown["home.config"].encode()).origin == origin


# The lists


def test_every_module_is_in_the_architecture_and_no_other() -> None:
    for package in PACKAGES:
        found = {path.stem for path in (REPOSITORY / package).glob("*.py")} - {"__init__"}
        unlisted = found ^ listed_modules(package).keys()
        assert not unlisted, (
            f"the table of {package} in docs/ARCHITECTURE.md needs a line, or one less: {unlisted}"
        )


def test_the_architecture_marks_what_is_held_to_be_pure() -> None:
    tree = ast.parse((REPOSITORY / "tests" / "project" / "test_layers.py").read_text("utf-8"))
    pure = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PURE"
    )
    for package in PACKAGES:
        marked = {name for name, is_pure in listed_modules(package).items() if is_pure}
        differ = marked ^ set(pure[package].split())
        assert not differ, (
            f"docs/ARCHITECTURE.md and test_layers differ on what is pure in {package}: {differ}"
        )


def listed_modules(package: str) -> dict[str, bool]:
    """The modules in a package's table, and whether each is marked as pure; one stands once."""
    section = sections(ARCHITECTURE)[package]
    rows = re.findall(r"^\| `(\w+)`( ○)? \|", section, re.MULTILINE)
    assert len(rows) == len(dict(rows)), f"a module of {package} stands twice"
    return {name: bool(mark) for name, mark in rows}


def sections(path: Path) -> dict[str, str]:
    """The text below each heading, by the first word of the heading."""
    parts = re.split(r"^#{2,3} (\S+?):?(?: .*)?$", path.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_table_and_column_is_in_the_page_of_the_store() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(resources.files("memory").joinpath("schema.sql").read_text("utf-8"))
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    tables = [name for name in names if not name.startswith("search_")]
    assert len(tables) > 10
    for table in tables:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        described = re.findall(
            r"^\| `(\w+)` \| ", sections(STORE)[table].partition("| name |")[0], re.MULTILINE
        )
        assert described == columns, table
    connection.close()


def test_every_command_is_documented() -> None:
    text = (REPOSITORY / "README.md").read_text("utf-8") + ARCHITECTURE.read_text("utf-8")
    missing = [name for name in COMMANDS if f"muniment {name}" not in text and f"`{name}`" not in text]
    assert not missing


def test_every_word_and_field_of_a_format_is_on_its_page() -> None:
    closed = [words for words in vars(manifest_fields).values() if isinstance(words, frozenset)]
    listed = {
        "manifest": frozenset().union(*closed),
        "statement": event.KINDS | event.ACTS | event.DETAILS,
        "policy-and-trust": trust._FIELDS - {"key"} | trust._KEY_FIELDS | set(trust.USES),
        "home": {*Config.__dataclass_fields__},
    }
    for page, words in listed.items():
        text = (DOCS / "formats" / f"{page}.md").read_text("utf-8")
        assert not [word for word in words if f"`{word}`" not in text], page


def test_every_decision_is_in_the_index_and_numbered() -> None:
    folder = DOCS / "decisions"
    pages = sorted(path.name for path in folder.glob("0*.md"))
    assert [int(name[:4]) for name in pages] == list(range(1, len(pages) + 1))
    index = (folder / "README.md").read_text("utf-8")
    for name in pages:
        title = (folder / name).read_text("utf-8").partition("\n")[0]
        assert f"- [{int(name[:4])}]({name}) {title.partition('. ')[2]}\n" in index


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    page = (DOCS / "decisions" / "0001-dependencies.md").read_text("utf-8")
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=~\[ ]", requirement)[0]
        assert f"| {name} |" in page, name
    for extra in set(project["optional-dependencies"]) - {"dev"}:
        assert f"extra `{extra}`" in page


# The links


def test_every_relative_link_resolves() -> None:
    count = 0
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            linked = (page.parent / name).resolve() if name else page
            assert linked.exists(), f"{page.relative_to(REPOSITORY)} links to {target}"
            assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}"
            count += 1
    assert count > 50


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# The commands of the README


class Shell:
    """A folder in which `muniment` is the command of this repository, and a home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        command = folder / "bin" / "muniment"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m memory.cli "$@"\n', "utf-8")
        command.chmod(0o755)
        shutil.copytree(REPOSITORY / "examples", folder / "examples")
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")},
            "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "MUNIMENT_HOME": str(self.home),
        }

    def run(self, line: str, exit_codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            ["sh", "-c", line],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=self._environment,
            timeout=60,
        )
        assert done.returncode in exit_codes, f"{line}: {done.returncode} {done.stdout}{done.stderr}"
        return done.stdout


def commands_below(heading: str) -> list[str]:
    """The lines of the first shell block below a line of the README."""
    _, found, rest = (REPOSITORY / "README.md").read_text("utf-8").partition(heading)
    assert found, f"the README has no line {heading}"
    return re.findall(r"^```sh\n(.*?)^```$", rest, re.MULTILINE | re.DOTALL)[0].splitlines()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell in whose home the first block of the README has been run."""
    shell = Shell(tmp_path_factory.mktemp("readme"))
    lines = commands_below("The same from a shell:")
    assert len(lines) == 6
    for line in lines:
        refused = "# refused: echo" in line
        said = shell.run(line, (1,) if refused else (0,))
        assert not refused or "refused (echo)" in said
    yield shell


def test_readme_the_same_from_a_shell(shell: Shell) -> None:
    assert shell.run("muniment get checkout-api/region") == "us-east-2\n"
    assert "223 lines" in shell.run("muniment import jsonl examples/team-week.jsonl")


def test_readme_if_you_check_one_proof(shell: Shell) -> None:
    shell.run("muniment log publish")
    (fact,) = json.loads(shell.run("muniment get checkout-api/region --json"))["active"]
    lines = commands_below("## If you check one proof")
    assert len(lines) == 4
    for line in lines:
        said = shell.run(line.replace(" ID ", f" {fact['id']} "))
    assert said.count(": holds\n") == 2
    shell.run("printf x >> fact.cose")
    shell.run(lines[-1], (1,))


def test_readme_if_you_audit_erasure(shell: Shell) -> None:
    shell.run("muniment log trust > trust.toml")
    lines = commands_below("## If you audit erasure")
    preview, confirm, *further = (line for line in lines if line.startswith("muniment forget "))
    *then, audit = (line for line in lines if not line.startswith("muniment forget "))
    (token,) = re.findall(r"--confirm (\S+)$", shell.run(preview))
    # In the example's week a fact about somebody else names her: it is kept, and the answer says how to go on.
    said = shell.run(confirm.replace("TOKEN", token), (1,))
    assert "state closed_partial" in said and "residue: result clean" in said
    ((to_go_on, kept),) = re.findall(
        r"^to erase them, too: (muniment forget --id (\S+))$", said, re.MULTILINE
    )
    told = [line.replace(" ID", f" {kept}") for line in further] or [to_go_on, f"{to_go_on} --confirm TOKEN"]
    assert len(told) == 2
    (token,) = re.findall(r"--confirm (\S+)$", shell.run(told[0]))
    assert "state closed_complete" in shell.run(told[1].replace("TOKEN", token))
    for line in then:
        shell.run(line)
    assert shell.run(audit).startswith("CLEAN")
    assert (shell.home / "log" / "erasures" / "2.cose").is_file()


def test_readme_if_you_operate_a_witness(shell: Shell) -> None:
    init, add_log, serve = commands_below("## If you operate a witness")
    assert serve.startswith("muniment witness serve ")
    state = shell.folder / "witness"
    vkey = json.loads(shell.run("muniment log vkey --json"))
    shell.run(init.replace("/var/lib/witness", str(state)))
    added = add_log.replace("/var/lib/witness", str(state)).replace("VKEY", vkey["vkey"])
    shell.run(added.replace("ORIGIN", vkey["origin"]))
    status = json.loads(shell.run(f"muniment witness status --state {state} --json"))
    assert [log["origin"] for log in status["logs"]] == [vkey["origin"]]
    require_documented(state, DOCS / "formats" / "witness.md")


def test_the_files_of_a_home_are_those_of_its_page(shell: Shell) -> None:
    shell.run("muniment log status")
    require_documented(shell.home, HOME)


def require_documented(folder: Path, page: Path) -> None:
    """Each file matches a row of the page's table, with the mode that stands there; folders are their owner's."""
    rows = re.findall(r"^\| `([^`]+)` \| (0600|umask) \|", page.read_text("utf-8"), re.MULTILINE)
    patterns = [(re.compile(re.sub(r"<\w+>", ".+", re.escape(path))), mode) for path, mode in rows]
    assert len(patterns) >= 4
    for path in folder.rglob("*"):
        mode, name = path.stat().st_mode, path.relative_to(folder).as_posix()
        if stat.S_ISDIR(mode):
            assert stat.S_IMODE(mode) == 0o700, name
            continue
        found = [expected for pattern, expected in patterns if pattern.fullmatch(name)]
        assert found, f"{page.name} does not list {name}"
        assert "umask" in found or stat.S_IMODE(mode) == 0o600, name
