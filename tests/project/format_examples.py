"""The worked examples of docs/formats, each by the name of its block there.

`python tests/project/format_examples.py` writes each example into the block that bears its name, a fence such as
```hex statement.entry; test_docs checks that every block is what the code makes.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FORMATS = REPOSITORY / "docs" / "formats"
for folder in (REPOSITORY, Path(__file__).resolve().parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import format_world  # noqa: E402
from format_world import OWNER, SECRETS, SEEDS, World, make_world  # noqa: E402

from memory import canon  # noqa: E402
from memory.event import decode_content, link_hash  # noqa: E402
from memory.import_jsonl import parse_lines  # noqa: E402
from memory.import_report import Line  # noqa: E402
from memory.opening import format_opening  # noqa: E402
from memory.provenance import receipt  # noqa: E402
from memory.scope import make_scope  # noqa: E402
from memory.search import index_words, make_document, scope_token  # noqa: E402
from tlog import cbor, dedup, staging  # noqa: E402
from tlog.cose import VDP, decode_sign1, sig_structure  # noqa: E402
from tlog.keys import load_cose_key  # noqa: E402
from tlog.merkle import leaf_hash  # noqa: E402
from tlog.receipt import INCLUSION, parse_receipt, split_transparent  # noqa: E402
from tlog.statement import entry_identity  # noqa: E402
from tlog.storage import DirectoryStorage  # noqa: E402
from witness import store as witness_store  # noqa: E402
from witness.wire import origin_digest  # noqa: E402

BLOCK = re.compile(
    r"^```(?P<kind>[a-z]+) (?P<name>[a-z0-9.-]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
LINES = (
    '{"text": "The stand-up begins at 09:15.", "key": "standup/time", "value": "09:15", "client": "desk"}',
    '{"text": "Lunch is at noon."}',
    '{"text": "Lunch is at noon."}',
)
VALUES = (
    "eu-west-1",
    "EU-WEST-1",
    "“Heron”",
    "true",
    "1,000",
    "3.10",
    "0.5",
    "007",
    "-5",
    "5 apples",
    "5m",
    "90 days",
    "2 months",
    "1.5 GB",
    "1500 MB",
    "20 %",
    "EUR 12.50",
    "2026-03-01",
    "March 1, 2026",
    "03/04/2026",
    "March 2026",
    "9:15 AM",
    "2026-03-01T10:15+01:00",
    "+49 30 5550 1234",
    "Dana@Example.org",
)
KEYS = ("checkout-api/region", "Checkout API / Region", "checkoutApi.region", "python/3.10", "user/city")


# How examples are written


def hexed(data: bytes) -> str:
    """Hexadecimal, 32 bytes a line."""
    text = data.hex()
    return "".join(f"{text[at : at + 64]}\n" for at in range(0, len(text), 64))


def diagnosed(encoded: bytes) -> str:
    """CBOR diagnostic notation (RFC 8949, 8), one item a line; long byte strings run over lines (RFC 8610, G)."""
    return f"{_diagnose(cbor.decode(encoded, max_bytes=1 << 20), '')}\n"


def _diagnose(value: Any, indent: str) -> str:
    inner = f"{indent}  "
    if isinstance(value, dict) and value:
        items = [f"{inner}{_diagnose(k, '')}: {_diagnose(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        flat = f"[{', '.join(_diagnose(item, '') for item in value)}]"
        if "\n" not in flat and len(flat) <= 80:
            return flat
        return "[\n" + ",\n".join(f"{inner}{_diagnose(item, inner)}" for item in value) + f"\n{indent}]"
    if isinstance(value, bytes):
        if len(value) <= 32:
            return f"h'{value.hex()}'"
        return f"h'\n{inner}" + f"\n{inner}".join(re.findall(".{1,64}", value.hex())) + "'"
    return json.dumps(value, ensure_ascii=False)


def tabled(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of a table, one column a line, rows apart by an empty line."""
    return "\n".join("".join(f"{name:<14} {_cell(value)}\n" for name, value in row.items()) for row in rows)


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return "NULL" if value is None else str(value)


# The examples


def examples() -> dict[str, str]:
    """Every example by its name."""
    with tempfile.TemporaryDirectory() as folder, make_world(Path(folder)) as world:
        return {
            **_statement_examples(world),
            **_receipt_examples(world),
            **_log_examples(world),
            **_manifest_examples(world),
            **_store_examples(world),
            **_home_examples(world),
            **_witness_examples(world),
            **_text_examples(),
        }


def _statement_examples(world: World) -> dict[str, str]:
    made, corrected, tombstone, announced = world.rows[1], world.rows[2], world.rows[4], world.rows[5]
    assert made.content is not None and made.content_salt is not None
    message = decode_sign1(made.entry)
    assert message.payload is not None
    key = load_cose_key(world.home.path / "keys" / "issuer.key").key
    return {
        "statement.link": diagnosed(made.link),
        "statement.link-hex": hexed(made.link),
        "statement.link-salt": hexed(made.link_salt),
        "statement.l": hexed(link_hash(made.link, made.link_salt)),
        "statement.content": diagnosed(made.content),
        "statement.content-hex": hexed(made.content),
        "statement.content-salt": hexed(made.content_salt),
        "statement.k": hexed(made.content_hash),
        "statement.c": hexed(made.commitment),
        "statement.id": f"{made.id}\n",
        "statement.protected": diagnosed(message.protected),
        "statement.sig-structure": hexed(sig_structure(message.protected, message.payload)),
        "statement.entry": hexed(made.entry),
        "statement.leaf-hash": hexed(leaf_hash(made.entry)),
        "statement.identity": hexed(entry_identity(made.entry)),
        "statement.link-superseded": diagnosed(corrected.link),
        "statement.link-erase": diagnosed(tombstone.link),
        "statement.link-manifest": diagnosed(announced.link),
        "statement.issuer-key": diagnosed(key.encode()),
        "statement.issuer-key-hex": hexed(key.encode()),
    }


def _receipt_examples(world: World) -> dict[str, str]:
    parts, made = world.home.parts(), world.rows[1]
    transparent = receipt(parts, OWNER, made.id)
    _, (signed,) = split_transparent(transparent)
    message = parse_receipt(signed).message
    proofs: Any = message.unprotected[VDP]
    opening = {
        "commitment": made.commitment,
        "link": made.link,
        "link_salt": made.link_salt,
        "content": made.content or b"",
        "content_salt": made.content_salt or b"",
    }
    return {
        "receipt.protected": diagnosed(message.protected),
        "receipt.proof": diagnosed(proofs[INCLUSION][0]),
        "receipt.hex": hexed(signed),
        "receipt.transparent": hexed(transparent),
        "tlog-proof.file": receipt(parts, OWNER, made.id, "tlog-proof").decode(),
        "opening.file": format_opening(opening).decode(),
    }


def _log_examples(world: World) -> dict[str, str]:
    public, private = world.home.public_storage(), DirectoryStorage(world.home.path / "log-state")
    first = staging.Head(4, world.home.log().root_at(4))
    staged = staging.encode_segment([row.entry for row in world.rows[:4]])
    texts = {name: (private.read(name) or b"").decode() for name in ("head", "integrated", "signed")}
    return {
        "log.vkey": f"{world.home.log_vkey()}\n",
        "log.checkpoint": (public.read("checkpoint") or b"").decode(),
        "log.tile": hexed(public.read("tile/0/000.p/6") or b""),
        "log.bundle": hexed(public.read("tile/entries/000.p/4") or b""),
        **{f"log.{name}": text for name, text in texts.items()},
        "log.segment-name": f"{staging.Segment(staging.EMPTY_HEAD, first).path}\n",
        "log.segment-digest": f"{len(staged)} bytes, SHA-256 {sha256(staged).hexdigest()}\n",
        "log.dedup-schema": dedup._SCHEMA.strip() + "\n",
        "trust.policy": world.home.policy().text,
        "trust.file": world.home.trust().text,
    }


def _manifest_examples(world: World) -> dict[str, str]:
    data = world.home.public_storage().read("erasures/1.cose") or b""
    message = decode_sign1(data)
    assert message.payload is not None
    return {
        "manifest.protected": diagnosed(message.protected),
        "manifest.document": diagnosed(message.payload),
        "manifest.hex": hexed(data),
        "manifest.digest": hexed(sha256(data).digest()),
    }


def _store_examples(world: World) -> dict[str, str]:
    parts, made = world.home.parts(), world.rows[1]
    with parts.store.read() as view:
        tenant = view.tenant(parts.vault.index_tag("tenant", "default"))
    assert tenant is not None and made.content is not None
    scope = make_scope(parts.vault, tenant, "default")
    value = canon.canonical_value("eu-west-1")
    tagged = cbor.encode(["value", "default", str(canon.VERSION), value.kind, value.form])
    document = make_document(scope_token(scope.agent_tag), decode_content(made.content))
    names = ("key", "value", "body")
    return {
        "store.meta": tabled(world.tables["meta"]),
        "store.tenants": tabled(world.tables["tenants"]),
        "store.facts": tabled(world.tables["facts"][1:3]),
        "store.acts": tabled(world.tables["acts"]),
        "store.ledger": tabled(world.tables["ledger"]),
        "store.tag-key": hexed(SECRETS["tenant"]),
        "store.tag-input": diagnosed(tagged),
        "store.tag-input-hex": hexed(tagged),
        "store.tag": hexed(scope.value_tag(value)),
        "store.search": "".join(
            f"{name:<7} {text}".rstrip() + "\n" for name, text in zip(names, document.columns, strict=True)
        ),
        "store.words": f"{' '.join(index_words('设备清单 A1 naïve ⟦🙂⟧'))}\n",
    }


def _home_examples(world: World) -> dict[str, str]:
    keys = world.home.path / "keys"
    return {
        "home.config": (world.home.path / "config.toml").read_text("utf-8"),
        "home.log-key": (keys / "log.key").read_text("utf-8"),
        "home.issuer-key": (keys / "issuer.key").read_text("utf-8"),
    }


def _witness_examples(world: World) -> dict[str, str]:
    return {
        "witness.vkey": f"{format_world.cosigner_vkey()}\n",
        "witness.first-request": world.requests[0].decode(),
        "witness.request": world.requests[1].decode(),
        "witness.answer": world.answers[1].decode(),
        "witness.conflict": world.conflict.decode(),
        "witness.path": f"/{origin_digest(format_world.ORIGIN).hex()}/checkpoint\n",
        "witness.checkpoint": world.witnessed.decode(),
        "witness.marker": (world.state / witness_store.MARKER).read_text("utf-8"),
        "witness.schema": witness_store._SCHEMA.strip() + "\n",
    }


def _text_examples() -> dict[str, str]:
    parsed = [line for line in parse_lines(line.encode() for line in LINES) if isinstance(line, Line)]
    forms = {
        value: ", ".join(f"{kind} {form}" for kind, form in canon.value_forms(value)) for value in VALUES
    }
    return {
        "jsonl.lines": "".join(f"{line}\n" for line in LINES),
        "jsonl.arguments": "".join(
            f"{json.dumps({'client': line.client, **line.arguments})}\n" for line in parsed
        ),
        "canon.values": "".join(f"{value:<26} {form}\n" for value, form in forms.items()),
        "canon.keys": "".join(f"{key:<26} {canon.canonical_key(key)}\n" for key in KEYS),
        "seeds": "".join(f"{name:<10} {seed.hex()}\n" for name, seed in (SEEDS | SECRETS).items()),
    }


# The blocks of the documents


def blocks() -> dict[str, tuple[Path, str]]:
    """Every block that bears a name, with its document; a name stands once."""
    found: dict[str, tuple[Path, str]] = {}
    for path in sorted(FORMATS.glob("*.md")):
        for match in BLOCK.finditer(path.read_text("utf-8")):
            assert match["name"] not in found, f"{match['name']} stands twice"
            found[match["name"]] = (path, match["text"])
    return found


def write() -> int:
    """How many documents changed once each example stands in its block."""
    made, changed = examples(), 0
    for path in sorted(FORMATS.glob("*.md")):
        text = path.read_text("utf-8")
        filled = BLOCK.sub(
            lambda match: f"```{match['kind']} {match['name']}\n{made.get(match['name'], match['text'])}```",
            text,
        )
        if filled != text:
            path.write_text(filled, "utf-8")
            changed += 1
    return changed


if __name__ == "__main__":
    print(f"{write()} documents changed")
