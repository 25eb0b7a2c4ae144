"""The report in its three forms: what it shows is there, none of it is content, and a signed one can't be changed."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from auditor.evidence import Entries, ErasureRow, Span
from auditor.exhibits import Card, Exhibits, Head, PageMap, check_heads, make_cards
from auditor.findings import SEVERITIES, Finding, Note, Outcome
from auditor.page_map import MAX_RUNS, make_map
from auditor.report import Report, ageing, to_document
from auditor.report_html import to_html
from auditor.report_svg import COLUMNS, MAX_CELLS, page_map, timeline
from auditor.report_words import MEANINGS
from auditor.sqlite_format import parse_page
from memory import cli
from memory.backup import backup
from memory.model import SCOPES, Principal
from memory.wiring import open_home
from tlog import cbor
from tlog.cose import decode_sign1, encode_sign1
from tlog.errors import MalformedError, VerificationError
from tlog.keys import load_cose_key, make_root_key
from tlog.merkle import Frontier, leaf_hash
from tlog.reports import REPORT_LABEL, REPORT_TYP, parse_report
from tlog.statement import entry_of

CONTENTS = (
    "Berlin",
    "garden",
    "庭の話",
    "Kumquat",
    "sencha",
    "secret plan",
    "globex",
    "acme",
    "office/city",
    "k8s",
)
VOID = {"meta", "br", "rect", "line", "circle", "polyline"}
DAY = 86_400
NOW = 1_790_000_000


class Page(HTMLParser):
    """A strict reading of a page: tags that close, the addresses it names, and the text in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [
            value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "style")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def reported(original: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The three forms of one audit of the home, the key, and a trust file that believes it."""
    folder = tmp_path_factory.mktemp("report")
    files = {name: folder / name for name in ("r.html", "r.json", "r.cose", "auditor.key", "trust.toml")}
    assert cli.main(["audit", "--new-report-key", str(files["auditor.key"]), "--json"]) == 0
    arguments = ["audit", "--home", str(original), "--trust", str(original / "trust.toml")]
    for form in ("r.html", "r.json", "r.cose"):
        arguments += ["--report", str(files[form])]
    # Whether the home is clean is for other tests to say.
    assert cli.main([*arguments, "--report-key", str(files["auditor.key"])]) in (0, 1)
    return files


@pytest.fixture
def trusted(reported: dict[str, Path], original: Path, tmp_path: Path, capsys: Any) -> Path:
    """The home's trust file with the lines that the command prints for a new key."""
    key = tmp_path / "another.key"
    assert cli.main(["audit", "--new-report-key", str(key)]) == 0
    lines = capsys.readouterr().out
    reported["another.key"] = key
    trust = tmp_path / "trust.toml"
    trust.write_text((original / "trust.toml").read_text() + "\n" + lines)
    return trust


def test_the_page_needs_nothing_but_itself(reported: dict[str, Path]) -> None:
    text = reported["r.html"].read_text("utf-8")
    page = Page(text)
    assert not page.open
    assert page.addresses == []
    assert not {"script", "link", "img", "iframe", "object", "a", "form"} & set(page.tags)
    assert not re.search(r"@import|url\(|javascript:", text)
    assert "default-src &#x27;none&#x27;" in text


def test_the_page_shows_every_part(reported: dict[str, Path]) -> None:
    document = json.loads(reported["r.json"].read_text("utf-8"))
    text = " ".join(Page(reported["r.html"].read_text("utf-8")).words)
    for title in ("What was checked", "What was not checked", "The log over time", "Population and sample"):
        assert title in text
    for note in document["checked"] + document["not_checked"]:
        assert note["text"] in text
    assert document["subject"]["root"] in text
    assert document["subject"]["evidence"] == "home"
    (request,) = document["exhibits"]["requests"]
    assert request["request"] in text
    assert request["digest"] in text
    assert "store.db: " in text
    assert all(one["leaf"] in text for one in document["exhibits"]["sample"])


@pytest.mark.parametrize("form", ["r.html", "r.json", "r.cose"])
def test_no_form_has_content_in_it(reported: dict[str, Path], form: str) -> None:
    data = reported[form].read_bytes()
    assert [
        text for text in CONTENTS if text.encode() in data or json.dumps(text)[1:-1].encode() in data
    ] == []


def test_the_exhibits_are_those_of_the_home(reported: dict[str, Path], original: Path) -> None:
    document = json.loads(reported["r.json"].read_text("utf-8"))
    shown = document["exhibits"]
    assert sum(shown["population"]["statements"].values()) == document["counts"]["statements"]
    assert shown["population"]["statements"]["erase"] == 1
    manifest = (original / "log" / "erasures" / "1.cose").read_bytes()
    assert shown["requests"][0]["digest"] == hashlib.sha256(manifest).hexdigest()
    assert shown["requests"][0]["state"] == "closed_complete"
    (main,) = [one for one in shown["pages"] if one["file"] == "store.db"]
    assert sum(main["totals"].values()) * main["unit_bytes"] == (original / "store.db").stat().st_size
    assert {head["found_in"] for head in shown["heads"]} == {"erasures/1.cose", "checkpoint"}
    root = bytes.fromhex(document["subject"]["root"])
    ranks = [hashlib.sha256(root + bytes.fromhex(one["commitment"])).digest() for one in shown["sample"]]
    assert len(set(ranks)) == min(24, document["counts"]["statements"])


def test_a_head_that_an_earlier_audit_kept_is_shown(copy: Any, tmp_path: Path) -> None:
    first = copy.audit(state=tmp_path / "state").exhibits.heads
    assert "an earlier audit" not in {head.found_in for head in first}
    (tmp_path / "state" / f"{'0' * 64}.checkpoint").write_bytes(b"of another log")
    second = copy.audit(state=tmp_path / "state").exhibits.heads
    (kept,) = [head for head in second if head.found_in == "an earlier audit"]
    assert (kept.size, kept.root) == (first[-1].size, first[-1].root)


def test_text_is_escaped() -> None:
    nasty = '<script>alert("x")</script>&'
    finding = Finding("LOG_FORK", nasty, nasty, {nasty: nasty})
    note = Note(nasty, nasty, 1)
    head = Head(nasty, 3, nasty, ((nasty, NOW),), nasty, nasty)
    card = Card(nasty, 1, nasty, nasty, nasty, 1, nasty, why=(nasty,), limits=(nasty,), digest=nasty)
    shown = Exhibits(
        (head,), (PageMap(nasty, "page", 4096, (("live", 3),), {"live": 3}),), (card,), {nasty: 1}, {nasty: 1}
    )
    report = Report(Outcome((finding,), (note,), (note,)), nasty, {"origin": nasty}, shown, NOW)
    page = Page(to_html(report))
    assert not page.open
    assert "script" not in page.tags
    assert " ".join(page.words).count(nasty) > 10


def test_a_page_with_residue_is_red_on_the_map(copy: Any) -> None:
    store = copy.home / "store.db"
    number, gap = next(_gaps(store))
    with store.open("r+b") as file:
        file.seek((number - 1) * 4096 + gap)
        file.write(b"what was there")
    (found,) = [one for one in copy.audit().exhibits.maps if one.file == "store.db"]
    kinds = [kind for kind, count in found.runs for _ in range(count)]
    assert [at for at, kind in enumerate(kinds, 1) if kind == "residue"] == [number]
    assert '<rect class="residue"' in page_map(found)[0]


def _gaps(store: Path) -> Iterator[tuple[int, int]]:
    """Number and offset of room between pointers and cells, in pages that have some."""
    data = store.read_bytes()
    for number in range(2, len(data) // 4096 + 1):
        raw = data[(number - 1) * 4096 : number * 4096]
        if raw[0] in (10, 13):
            page = parse_page(raw, 4096, 0)
            if page.content_start - page.array_end > 100:
                yield number, page.array_end + 40


def test_a_large_file_has_a_small_picture() -> None:
    one = PageMap("store.db", "page", 4096, (("live", 1_000_000), ("residue", 1), ("zero", 999_999)), {})
    picture, share = page_map(one)
    assert share > 1
    assert -(-2_000_001 // share) <= MAX_CELLS
    assert picture.count('class="residue"') == 1
    assert len(picture) < 200 * MAX_CELLS // COLUMNS * 3


def test_a_torn_file_has_few_runs_and_loses_no_residue() -> None:
    kinds = ["live", "zero"] * 50_000
    kinds[77_777] = "residue"
    one = make_map("store.db", "page", 4096, kinds)
    assert len(one.runs) <= MAX_RUNS
    assert sum(count for _, count in one.runs) == 100_000
    assert [kind for kind, _ in one.runs].count("residue") == 1
    assert one.totals == {"zero": 49_999, "live": 50_000, "residue": 1}
    few = make_map("store.db", "page", 4096, ["live", "live", "zero"])
    assert few.runs == (("live", 2), ("zero", 1))


def test_the_timeline_has_a_mark_for_each_cosignature() -> None:
    heads = [
        Head("log", size, "00" * 32, (("one", NOW + size), ("two", NOW + 2 * size)), "checkpoint")
        for size in (1, 5)
    ]
    picture = timeline(heads, [Card("aa", 1, "closed_complete", erased_at=NOW * 1_000_000)])
    assert picture.count('class="cosigned"') == 4
    assert picture.count('class="head"') == 2
    assert picture.count('class="erased"') == 1
    assert timeline([replace(head, cosigned=()) for head in heads], []) == ""


def test_ages_count_to_now_while_a_request_is_open() -> None:
    def card(state: str, days: int, closed: int | None = None) -> Card:
        start = (NOW - days * DAY) * 1_000_000
        return Card(
            "aa",
            1,
            state,
            started_at=start,
            closed_at=None if closed is None else start + closed * DAY * 1_000_000,
        )

    rows = ageing(
        [
            card("inconclusive", 31, 0),
            card("closed_complete", 31, 2),
            card("awaiting_backups", 1),
            Card("b", None, "executing"),
        ],
        NOW,
    )
    assert [(row["age"], row["open"], row["closed"]) for row in rows] == [
        ("up to 1 day", 1, 0),
        ("up to 7 days", 0, 1),
        ("up to 30 days", 0, 0),
        ("more than 30 days", 1, 0),
        ("not told", 1, 0),
    ]


def test_a_request_that_did_not_end_has_a_card_with_its_age() -> None:
    detail = {
        "started_at": NOW * 1_000_000 + 7,
        "basis": "legal",
        "scope": {"kind": "subject", "count": 2, "derived": 1},
    }
    row = ErasureRow(3, 1, bytes(16), "executing", None, cbor.encode(detail), None)
    (card,) = make_cards((), (row,))
    assert (card.state, card.basis, card.scope, card.erased) == ("executing", "legal", "subject", 3)
    assert card.is_open
    assert card.started_at is not None
    assert card.started_at % 3_600_000_000 == 0
    assert card.age_seconds(NOW + 40 * DAY) in range(40 * DAY, 40 * DAY + 3600)
    (spoiled,) = make_cards((), (replace(row, detail=b"\xff", state="Dana Scully lives"),))
    assert (spoiled.started_at, spoiled.state) == (None, "(not a word)")
    assert make_cards((), (replace(row, state="abandoned"),)) == ()


def test_every_code_has_its_words() -> None:
    assert SEVERITIES.keys() == MEANINGS.keys()


def test_a_head_in_a_manifest_that_the_log_denies_is_a_fork() -> None:
    entries = [b"one", b"two", b"three"]
    frontier = Frontier(0, ()).extend(leaf_hash(entry) for entry in entries[:2])
    read = Entries(3, tuple(entries), True, (Span(0, 3, "log", None),))
    good = Head("log", 2, frontier.root().hex(), (), "erasures/1.cose")
    assert check_heads([good], read).findings == ()
    bad = replace(good, root="11" * 32)
    assert [one.code for one in check_heads([good, bad], read).findings] == ["LOG_FORK"]
    assert [one.code for one in check_heads([replace(good, size=4)], read).findings] == ["LOG_ROLLED_BACK"]


# Signed


def test_a_signed_report_holds_for_whoever_trusts_the_auditor(
    copy: Any, reported: dict[str, Path], trusted: Path, tmp_path: Path, capsys: Any
) -> None:
    signed = tmp_path / "mine.cose"
    arguments = ["audit", "--home", str(copy.home), "--trust", str(trusted), "--report", str(signed)]
    code = cli.main([*arguments, "--report-key", str(reported["another.key"])])
    said = "said_findings" if code else "said_clean"
    capsys.readouterr()
    assert cli.main(["verify", str(signed), "--trust", str(trusted), "--json"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)["files"]
    assert verdict["kind"] == "report"
    assert {claim["code"] for claim in verdict["proved"]} == {"report_hash", "report_signature"}
    assert {said, "audit_itself", "now"} <= {claim["code"] for claim in verdict["not_proved"]}
    assert cli.main(["verify", str(signed), "--trust", str(copy.home / "trust.toml")]) == 1


def test_an_audit_under_the_homes_own_trust_says_so_everywhere(
    copy: Any, reported: dict[str, Path], trusted: Path, tmp_path: Path, capsys: Any
) -> None:
    """A lawyer, a script and whoever verifies the signed form are told that nobody independent was asked."""
    files = {form: tmp_path / f"own.{form}" for form in ("html", "json", "cose")}
    arguments = ["audit", "--home", str(copy.home), "--report-key", str(reported["another.key"])]
    for path in files.values():
        arguments += ["--report", str(path)]
    code = cli.main(arguments)
    assert "consistency, not independence" in capsys.readouterr().out
    assert json.loads(files["json"].read_text())["trust"] == "home"
    assert "consistency, not independence" in files["html"].read_text()
    assert cli.main(["verify", str(files["cose"]), "--trust", str(trusted)]) == 0
    assert "consistency, not independence" in capsys.readouterr().out
    assert cli.main([*arguments, "--trust", str(trusted)]) == code, "the verdict is that of the checks"
    assert "independence" not in capsys.readouterr().out + files["html"].read_text()
    assert json.loads(files["json"].read_text())["trust"] == "caller"
    assert json.loads(reported["r.json"].read_text())["trust"] == "caller"


def test_a_backup_is_shown_with_what_it_holds_of_the_erased(copy: Any, tmp_path: Path) -> None:
    with open_home(copy.home) as home:
        backup(home, tmp_path / "first.backup", 90 * 86_400_000_000)
        memory = home.memory(Principal("acme", "bot", "one", SCOPES))
        token = memory.forget_preview(key="fax")["confirm"]
        memory.forget(key="fax", confirm=token)
        backup(home, tmp_path / "second.backup", 0)
        home.publish()
    audited = copy.audit()
    assert audited.outcome.findings == ()
    erased = 2  # the number, and that it is no longer true
    first, second = sorted(audited.exhibits.backups, key=lambda one: -one.held)
    assert (first.held, first.beyond_use, second.held, second.beyond_use) == (erased, erased, 0, 0)
    assert first.expires_at - first.made_at in (90 * 86_400, 90 * 86_400 + 3600)
    page = to_html(
        Report(audited.outcome, "2026-01-01T00:00:00Z", {}, audited.exhibits, first.expires_at + 1)
    )
    assert first.backup[:16] in page and "which has passed" in page
    document = to_document(Report(audited.outcome, "x", {}, audited.exhibits))
    assert {one["held"] for one in document["exhibits"]["backups"]} == {erased, 0}
    copy.sql(("UPDATE backups SET last_seq = 0 WHERE number = ?", (bytes.fromhex(first.backup),)))
    assert {one.held for one in copy.audit().exhibits.backups} == {0}


def test_the_signed_report_is_the_json_report(reported: dict[str, Path]) -> None:
    signed = parse_report(reported["r.cose"].read_bytes())
    assert signed.report == reported["r.json"].read_bytes()
    assert signed.verdict == json.loads(signed.report)["verdict"]


def test_a_changed_report_is_refused(reported: dict[str, Path]) -> None:
    data = reported["r.cose"].read_bytes()
    message = decode_sign1(data)
    report = message.unprotected[REPORT_LABEL]
    assert isinstance(report, bytes)
    changed = report.replace(b'"verdict":"', b'"verdict": "')
    assert changed != report
    other = encode_sign1(message.protected, {REPORT_LABEL: changed}, message.payload, message.signature)
    with pytest.raises(VerificationError):
        parse_report(other)
    with pytest.raises(MalformedError):
        parse_report(encode_sign1(message.protected, {}, message.payload, message.signature))


def test_a_report_can_be_logged_whatever_its_size(reported: dict[str, Path]) -> None:
    entry = entry_of(reported["r.cose"].read_bytes())
    assert len(entry) < 1000
    assert decode_sign1(entry).payload == hashlib.sha256(reported["r.json"].read_bytes()).digest()


def test_the_operators_key_signs_no_report(copy: Any, tmp_path: Path, capsys: Any) -> None:
    arguments = ["audit", "--home", str(copy.home), "--trust", str(copy.home / "trust.toml"), "--json"]
    arguments += ["--report", str(tmp_path / "r.cose"), "--report-key"]
    assert cli.main([*arguments, str(copy.home / "keys" / "manifest.key")]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "report_key"
    elsewhere = tmp_path / "copied.key"
    elsewhere.write_bytes((copy.home / "keys" / "issuer.key").read_bytes())
    elsewhere.chmod(0o600)
    assert cli.main([*arguments, str(elsewhere)]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "report_key"
    assert not (tmp_path / "r.cose").exists()


def test_a_signed_report_asks_for_a_key(copy: Any, tmp_path: Path, capsys: Any) -> None:
    base = ["audit", "--home", str(copy.home), "--report", str(tmp_path / "r.cose"), "--json"]
    assert cli.main(base) == 2
    assert "--new-report-key" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert cli.main([*base, "--report-key", str(tmp_path / "none.key")]) == 2
    assert cli.main(["audit", "--home", str(copy.home), "--report", str(tmp_path / "r.pdf")]) == 2


def test_a_report_that_can_go_nowhere_is_refused_before_the_audit(
    copy: Any, tmp_path: Path, capsys: Any
) -> None:
    lost = str(tmp_path / "nowhere" / "r.html")
    assert cli.main(["audit", "--home", str(copy.home), "--report", lost]) == 2
    assert "a folder that exists" in capsys.readouterr().err


def test_a_new_key_takes_no_ones_place(tmp_path: Path) -> None:
    key = tmp_path / "a.key"
    make_root_key(key)
    before = load_cose_key(key).kid
    assert cli.main(["audit", "--new-report-key", str(key)]) == 1
    assert load_cose_key(key).kid == before


def test_verifying_a_report_loads_nothing_heavy(reported: dict[str, Path]) -> None:
    code = (
        "import sys\nfrom memory.cli import main\nmain(sys.argv[1:])\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "verify", str(reported["r.cose"])],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parent.parent.parent,
    )
    loaded = set(done.stderr.split())
    assert "tlog.reports" in loaded
    assert not {"pycose", "httpx", "pydantic", "numpy", "apsw", "sqlite3", "auditor"} & loaded


def test_a_hostile_report_is_refused_soon() -> None:
    payload = b"[" * (1 << 20)
    digest = hashlib.sha256(payload).digest()
    headers = {1: -8, 4: b"k", 15: {1: "a", 2: "b"}, 16: REPORT_TYP, 258: -16, 259: "application/json"}
    with pytest.raises(MalformedError):
        parse_report(encode_sign1(cbor.encode(headers), {REPORT_LABEL: payload}, digest, b"s" * 64))
    for document in ({}, {"verdict": "clean"}, {"verdict": "fine", "counts": {"findings": 0}, "subject": {}}):
        payload = json.dumps(document).encode()
        digest = hashlib.sha256(payload).digest()
        with pytest.raises(MalformedError):
            parse_report(encode_sign1(cbor.encode(headers), {REPORT_LABEL: payload}, digest, b"s" * 64))


def test_findings_are_told_with_their_meaning() -> None:
    outcome = Outcome((Finding("RESIDUE_FREE_SPACE", "store.db page 4 (free)", "Bytes.", {"page": 4}),))
    text = to_html(Report(outcome, "2026-01-01T00:00:00Z", now=int(time.time())))
    assert MEANINGS["RESIDUE_FREE_SPACE"] in text
    assert "store.db page 4 (free)" in text
    assert to_document(Report(outcome, "x"))["exhibits"]["pages"] == []
