"""The deletion manifest: content-free by construction, honest about completeness, chained, and signed."""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from memory import event, manifest
from memory.manifest_fields import check_document
from tlog import cbor
from tlog.cose import decode_sign1, encode_sign1, make_signer
from tlog.errors import Error, MalformedError, VerificationError
from tlog.statement import sign_statement

SIGNER = make_signer(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
ISSUER, SUBJECT = "urn:uuid:1", "urn:uuid:2"
TARGETS = tuple(bytes([n]) * 32 for n in (1, 2, 3))
REQUEST = bytes(range(16))
HOUR = 3_600_000_000
ERASED_AT = 497_222 * HOUR
EXACTLY_ERASED_AT = ERASED_AT + 123_456_789


CONTENT = event.encode_content({"recorded_at": EXACTLY_ERASED_AT})


def make_tombstone(**changes: Any) -> dict[str, Any]:
    details = {
        "number": 1,
        "request": REQUEST,
        "guard": "erase",
        "basis": "data_subject",
        "count": 3,
    } | changes
    link = event.Link("erase", 7, b"t" * 16, 4, {"erases": TARGETS}, details).encode()
    opened = event.commit(link, b"l" * 32, CONTENT, b"c" * 32)
    return {
        "entry": sign_statement(SIGNER, ISSUER, SUBJECT, opened.commitment),
        "link": link,
        "link_salt": b"l" * 32,
        "content_hash": opened.content_hash,
    }


def make_document(**changes: Any) -> dict[str, Any]:
    return {
        "schema": 2,
        "number": 1,
        "request": REQUEST,
        "state": "closed_complete",
        "why": [],
        "basis": "data_subject",
        "scope": {"kind": "subject", "count": 2, "derived": 1, "by_status": {"active": 2}, "mentions": 0},
        "guard": {"disposition": "erase", "entries": 1},
        "tombstone": make_tombstone(),
        "announcement": {
            "seq": 8,
            "tenant_seq": 5,
            "link_salt": b"m" * 32,
            "content_hash": b"k" * 32,
        },
        "systems": [{"kind": "store", "method": "delete_and_zero", "erased": 3, "result": "verified"}],
        "checks": [
            {"check": "residue", "result": "clean", "counts": {"needles": 4, "controls_found": 1}},
        ],
        "limits": ["file_system_free_space", "storage_hardware"],
        "times": {"started_at": ERASED_AT - HOUR, "erased_at": ERASED_AT, "closed_at": ERASED_AT},
        "log": {"origin": "muniment/abc"},
        "tools": {"muniment": "0.1.0", "sqlite": "3.54.1", "apsw": "3.54.1.0"},
    } | changes


def sign(document: dict[str, Any]) -> bytes:
    return manifest.sign_manifest(SIGNER, ISSUER, SUBJECT, document)


def sign_unchecked(document: Any) -> bytes:
    """What a dishonest operator with the key can sign."""
    protected = decode_sign1(sign(make_document())).protected
    from tlog.cose import sig_structure

    payload = cbor.encode(document)
    return encode_sign1(protected, {}, payload, SIGNER.sign(sig_structure(protected, payload)))


def changed(path: str, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(make_document())
    *parents, last = path.split(".")
    place: Any = document
    for name in parents:
        place = place[int(name)] if name.isdigit() else place[name]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


def test_a_manifest_reads_back_as_it_was_written() -> None:
    data = sign(make_document())
    opened = manifest.verify_manifest(data, SIGNER.key)
    assert opened.document == make_document()
    assert (opened.issuer, opened.subject, opened.kid) == (ISSUER, SUBJECT, SIGNER.kid)
    assert (opened.number, opened.previous, opened.state) == (1, None, "closed_complete")
    assert opened.tombstone.targets == TARGETS
    assert opened.digest == manifest.manifest_digest(data)


def test_a_manifest_has_exactly_these_bytes() -> None:
    """Manifests outlive the program that wrote them, so their encoding is pinned."""
    assert manifest.manifest_digest(sign(make_document())).hex() == (
        "4ab4abf3a45ddd5dd56a323cfda33fe77f59233c3365acbf4ce06382ca01efb8"
    )


def test_any_changed_byte_fails() -> None:
    data = sign(make_document())
    for at in range(0, len(data), 7):
        with pytest.raises(Error):
            manifest.verify_manifest(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], SIGNER.key)


@pytest.mark.parametrize("data", [b"", b"\xd2", b"not cbor"])
def test_refuses_what_is_no_message(data: bytes) -> None:
    with pytest.raises(MalformedError):
        manifest.decode_manifest(data)


def test_refuses_trailing_bytes_and_another_key() -> None:
    data = sign(make_document())
    with pytest.raises(MalformedError):
        manifest.decode_manifest(data + b"\0")
    other = make_signer(ed25519.Ed25519PrivateKey.generate())
    with pytest.raises(VerificationError):
        manifest.verify_manifest(data, other.key)


def test_signs_with_another_algorithm() -> None:
    signer = make_signer(ec.generate_private_key(ec.SECP256R1()))
    data = manifest.sign_manifest(signer, ISSUER, SUBJECT, make_document())
    assert manifest.verify_manifest(data, signer.key).number == 1


def test_a_statement_is_no_manifest() -> None:
    with pytest.raises(MalformedError):
        manifest.decode_manifest(make_tombstone()["entry"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("note", "Alice asked for it"),
        ("scope.subject", "Alice"),
        ("scope.kind", "alice@example.com"),
        ("basis", "because Alice said so"),
        ("state", "done"),
        ("why", ["Alice"]),
        ("why", ["residue_found", "legal_hold"]),
        ("limits", ["paraphrases", "paraphrases"]),
        ("systems.0.result", "fine"),
        ("systems.0.system", b"Alice"),
        ("checks.0.counts.alice", 1),
        ("checks.0.residue", [{"class": "Alice", "count": 1}]),
        ("scope.by_status.alice", 1),
        ("tools.sqlite", "3.54 for Alice"),
        ("log.origin", "alice smith"),
        ("request", b"alice"),
        ("claim", b"a" * 31),
        ("tombstone.content", CONTENT),
        ("tombstone.content_salt", b"c" * 32),
        ("times.erased_at", EXACTLY_ERASED_AT),
        ("times.started_at", ERASED_AT + 60_000_000),
        ("times.closed_at", ERASED_AT + 1),
        ("times.received_at", ERASED_AT - 1),
        ("backups", [{"backup": REQUEST, "beyond_use": True, "made_at": 1}]),
        ("scope.openings", 0),
        ("guard.requests", 0),
        ("keys", [{"key": REQUEST, "destroyed": "Alice"}]),
        ("tombstone.note", b"x"),
        ("number", 0),
        ("number", True),
        ("number", "1"),
        ("schema", 3),
        ("scope.count", -1),
        ("times.closed_at", ...),
        ("guard.expires_at", 5),
        ("guard.disposition", "expire"),
        ("previous", b"p" * 32),
        ("why", None),
        ("systems", {}),
    ],
)
def test_a_field_that_is_not_of_its_form_is_refused_on_both_sides(path: str, value: Any) -> None:
    with pytest.raises(MalformedError) as written:
        sign(changed(path, value))
    with pytest.raises(MalformedError):
        manifest.decode_manifest(sign_unchecked(changed(path, value)))
    assert "lice" not in str(written.value)


def test_every_text_in_a_manifest_is_a_listed_word() -> None:
    """No field of the format takes a text of the caller's, wherever one puts it."""

    def texts(value: Any, path: tuple[Any, ...] = ()) -> Any:
        if isinstance(value, dict):
            for name, item in value.items():
                yield from texts(item, (*path, name))
        elif isinstance(value, list):
            for at, item in enumerate(value):
                yield from texts(item, (*path, at))
        elif isinstance(value, str):
            yield path

    for path in texts(make_document()):
        if path == ("log", "origin"):
            continue
        document = copy.deepcopy(make_document())
        place: Any = document
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = "Dana Scully"
        with pytest.raises(MalformedError):
            check_document(document)


@pytest.mark.parametrize(
    "changes",
    [
        {"systems": []},
        {"checks": []},
        {"why": ["wal_pinned"]},
        {"exceptions": [{"why": "legal_hold", "count": 1}]},
        {"scope": {"kind": "id", "count": 0, "derived": 0}, "guard": {"disposition": "erase", "entries": 0}},
        {"scope": {"kind": "id", "count": 0, "derived": 0}, "guard": {"disposition": "keep", "entries": 1}},
        {"keys": [{"key": REQUEST, "destroyed": True}, {"key": REQUEST, "destroyed": False}]},
        *(
            {"systems": [{"kind": "store", "method": "delete", "erased": 3, "result": result}]}
            for result in ("not_verified", "inconclusive", "held", "failed", "not_reachable", "out_of_scope")
        ),
        *(
            {"checks": [{"check": "residue", "result": result, "counts": {}}]}
            for result in ("found", "inconclusive", "not_run")
        ),
    ],
)
def test_complete_is_unreachable_while_anything_speaks_against_it(changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedError):
        sign(make_document(**changes))
    with pytest.raises(MalformedError):
        manifest.decode_manifest(sign_unchecked(make_document(**changes)))
    partial = make_document(**changes, state="inconclusive")
    if partial["scope"]["count"]:
        assert manifest.decode_manifest(sign(partial)).state == "inconclusive"


@pytest.mark.parametrize(
    "changes",
    [
        {"scope": {"kind": "subject", "count": 1, "derived": 1}, "state": "inconclusive"},
        {"request": b"r" * 16},
        {"guard": {"disposition": "keep", "entries": 1}},
        {"basis": "operator"},
        {"tombstone": make_tombstone(count=4)},
        {"tombstone": make_tombstone() | {"link_salt": b"x" * 32}},
        {"tombstone": make_tombstone() | {"content_hash": b"x" * 32}},
    ],
)
def test_a_manifest_that_says_other_than_its_tombstone_does_not_verify(changes: dict[str, Any]) -> None:
    with pytest.raises(VerificationError):
        manifest.decode_manifest(sign_unchecked(make_document(**changes)))


def test_a_tombstone_of_another_kind_does_not_verify() -> None:
    link = event.Link("write", 7, b"t" * 16, 4, {}, {"outcome": "stored"}).encode()
    opened = event.commit(link, b"l" * 32, CONTENT, b"c" * 32)
    other = make_tombstone() | {
        "entry": sign_statement(SIGNER, ISSUER, SUBJECT, opened.commitment),
        "link": link,
        "content_hash": opened.content_hash,
    }
    with pytest.raises(VerificationError):
        manifest.decode_manifest(sign_unchecked(make_document(tombstone=other)))


def test_hashes_of_retired_values_may_be_all_that_there_was_to_erase() -> None:
    link = event.Link(
        "erase",
        7,
        b"t" * 16,
        4,
        {},
        {"number": 1, "request": REQUEST, "guard": "erase", "basis": "data_subject", "count": 0},
    ).encode()
    opened = event.commit(link, b"l" * 32, CONTENT, b"c" * 32)
    tombstone = make_tombstone() | {
        "entry": sign_statement(SIGNER, ISSUER, SUBJECT, opened.commitment),
        "link": link,
        "content_hash": opened.content_hash,
    }
    scope = {"kind": "subject", "count": 0, "derived": 0, "mentions": 0}
    document = make_document(tombstone=tombstone, scope=scope)
    found = manifest.decode_manifest(sign(document))
    assert (found.state, found.tombstone.targets) == ("closed_complete", ())
    with pytest.raises(MalformedError):
        sign(document | {"guard": {"disposition": "keep", "entries": 1}})


def test_no_time_in_a_manifest_is_finer_than_an_hour() -> None:
    """Neither in a field of its own nor in the bytes of the tombstone: those are opened without their content."""
    data = sign(make_document())
    assert EXACTLY_ERASED_AT.to_bytes(8, "big") not in data
    assert (EXACTLY_ERASED_AT // 1_000_000).to_bytes(4, "big") not in data

    def whole_numbers(value: Any) -> Any:
        if isinstance(value, dict):
            return [found for item in value.values() for found in whole_numbers(item)]
        if isinstance(value, list):
            return [found for item in value for found in whole_numbers(item)]
        return [value] if isinstance(value, int) else []

    times = [number for number in whole_numbers(make_document()) if number > 10**12]
    assert len(times) == 3 and not any(number % HOUR for number in times)


def make_first_document(**changes: Any) -> dict[str, Any]:
    """One of schema 1 as the first version made it: exact times, its tombstone opened, nothing that announces it."""
    document = make_document(**{"schema": 1} | changes)
    del document["announcement"]
    content = event.encode_content({"recorded_at": ERASED_AT + 5})
    opened = event.commit(document["tombstone"]["link"], b"l" * 32, content, b"c" * 32)
    document["tombstone"] |= {
        "entry": sign_statement(SIGNER, ISSUER, SUBJECT, opened.commitment),
        "content_hash": opened.content_hash,
        "content": content,
        "content_salt": b"c" * 32,
    }
    document["times"] = {"started_at": ERASED_AT - 9, "erased_at": ERASED_AT + 5, "closed_at": ERASED_AT + 7}
    return document | changes


def test_a_manifest_of_schema_1_is_read_and_none_is_made() -> None:
    document = make_first_document()
    opened = manifest.verify_manifest(sign_unchecked(document), SIGNER.key)
    assert manifest.announcement_of(opened) is None
    said = manifest.describe_signed(opened.raw)
    assert [one["code"] for one in said["logged"]] == ["tombstone_logged"]
    assert "manifest_logged" in [one["code"] for one in said["not_proved"]]
    # One of schema 1 that says what announces it is held to that.
    told = make_document(schema=1)
    assert manifest.announcement_of(manifest.decode_manifest(sign_unchecked(told))) is not None
    for of_schema_1 in (document, told):
        with pytest.raises(MalformedError, match="schema 2"):
            sign(of_schema_1)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"schema": 0},
        {"note": "for Alice"},
        {"times": {"started_at": 0, "erased_at": 0, "closed_at": 0, "note": 1}},
        {"why": ["because"]},
    ],
)
def test_schema_1_is_looser_in_nothing_else(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedError):
        manifest.decode_manifest(sign_unchecked(make_first_document(**change)))


@pytest.mark.parametrize("field", ["content", "content_salt"])
def test_a_tombstone_of_schema_1_holds_its_time_and_nothing_else(field: str) -> None:
    said = make_first_document()
    other = event.encode_content({"recorded_at": ERASED_AT + 6}) if field == "content" else b"d" * 32
    said["tombstone"] |= {field: other}
    with pytest.raises(VerificationError):
        manifest.decode_manifest(sign_unchecked(said))
    free = make_first_document()
    content = event.encode_content({"recorded_at": 1, "text": "Alice"})
    opened = event.commit(free["tombstone"]["link"], b"l" * 32, content, b"c" * 32)
    entry = sign_statement(SIGNER, ISSUER, SUBJECT, opened.commitment)
    free["tombstone"] |= {"entry": entry, "content_hash": opened.content_hash, "content": content}
    with pytest.raises(MalformedError, match="its time"):
        manifest.decode_manifest(sign_unchecked(free))


def test_no_manifest_of_schema_1_follows_one_of_schema_2() -> None:
    first = manifest.decode_manifest(sign_unchecked(make_first_document()))
    second = manifest.decode_manifest(sign(make_document(number=2, previous=first.digest)))
    manifest.verify_successor(second, first)
    later = make_first_document(number=3, previous=second.digest)
    with pytest.raises(VerificationError, match="older form"):
        manifest.verify_successor(manifest.decode_manifest(sign_unchecked(later)), second)


def test_the_chain_holds_only_in_order() -> None:
    first = manifest.decode_manifest(sign(make_document()))
    second = manifest.decode_manifest(sign(make_document(number=2, previous=first.digest)))
    third = manifest.decode_manifest(sign(make_document(number=3, previous=second.digest)))
    manifest.verify_successor(first, None)
    manifest.verify_successor(second, first)
    manifest.verify_successor(third, second)
    for later, before in [(third, first), (second, None), (first, second), (second, second), (first, first)]:
        with pytest.raises(VerificationError):
            manifest.verify_successor(later, before)


def test_a_manifest_of_many_targets_is_signed_and_read() -> None:
    targets = tuple(os.urandom(32) for _ in range(40_000))
    details = {
        "number": 1,
        "request": REQUEST,
        "guard": "erase",
        "basis": "data_subject",
        "count": len(targets),
    }
    link = event.Link("erase", 7, b"t" * 16, 4, {"erases": targets}, details).encode()
    opened = event.commit(link, b"l" * 32, CONTENT, b"c" * 32)
    tombstone = make_tombstone() | {
        "entry": sign_statement(SIGNER, ISSUER, SUBJECT, opened.commitment),
        "link": link,
        "content_hash": opened.content_hash,
    }
    scope = {"kind": "all", "count": len(targets), "derived": 0}
    data = sign(make_document(tombstone=tombstone, scope=scope))
    assert len(data) > 1 << 20
    assert manifest.verify_manifest(data, SIGNER.key).tombstone.targets == targets


def test_describe_says_what_is_proved_and_what_is_not() -> None:
    document = make_document(state="inconclusive", why=["crash_before_scan"])
    described = manifest.describe(manifest.encode_document(document))
    assert {"tombstone_opened"} <= {one["code"] for one in described["proved"]}
    assert {"erasure_itself", "crash_before_scan"} <= {one["code"] for one in described["not_proved"]}
    assert described["state"] == "inconclusive"
    assert described["commitment"] == manifest.open_tombstone(document).commitment.hex()
    assert all(one["text"] for one in (*described["proved"], *described["not_proved"]))


def test_describe_refuses_a_document_that_is_none() -> None:
    with pytest.raises(MalformedError):
        manifest.describe(cbor.encode({"schema": 1}))
