"""One of two lives of a home that are alike but for what is erased in the end; writes down all that is left of it.

    python tests/memory/alike.py FOLDER WHICH WAY GUARD

Chance and time are the same in both, and so is the hash of each content, for its salt goes with it. What then differs
between what the two have left depends on what was erased.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import secrets
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402
from erasing import Clock, forget, write  # noqa: E402

from memory import event, tokens, wiring  # noqa: E402
from memory.backup import backup  # noqa: E402
from memory.memory_tool import COLLECTION, MemoryTool  # noqa: E402
from memory.principal import make_principal, with_all_scopes  # noqa: E402

LIVES = (
    {
        "name": "Otilia Brandmeyer",
        "number": "5551234567",
        "city": "Bremen",
        "by": "reviewer-one",
        "request": "a-1",
    },
    {
        "name": "Xaverl Quindlohnt",
        "number": "5559876501",
        "city": "Aachen",
        "by": "reviewer-two",
        "request": "b-2",
    },
)
DAYS = 86_400_000_000


def without_chance() -> None:
    """Whatever is random in this process is the same each time."""
    chance = random.Random(6)
    os.urandom = chance.randbytes
    secrets.token_bytes = lambda count=32: chance.randbytes(count or 32)
    secrets.token_hex = lambda count=32: chance.randbytes(count or 32).hex()
    secrets.choice = chance.choice
    Ed25519PrivateKey.generate = classmethod(
        lambda cls: Ed25519PrivateKey.from_private_bytes(chance.randbytes(32))
    )
    real = event._salted_hash

    def salted(beginning: bytes, salt: bytes, encoded: bytes) -> bytes:
        return real(beginning, salt, b"" if beginning is event._CONTENT else encoded)

    event._salted_hash = salted


def live(home: wiring.Home, clock: Clock, who: dict[str, str], tenant: str, folder: Path) -> None:
    """What somebody may leave traces by: values that were retired, disputed, held and refused, files, backups."""
    me, reviewer = (
        with_all_scopes(make_principal(tenant, "default", client)) for client in ("cli", who["by"])
    )
    kept = with_all_scopes(make_principal("default", "kept", "cli"))
    write(home, "Somebody else is here.", kept, key="else/colour", value="green", subject="Somebody")
    number, city = f"{who['name']}/number", f"{who['name']}/city"
    about = {"subject": who["name"], "source": f"a mail of {who['by']}"}
    said = f"Her number is {who['number']}, and she is from {who['city']}."
    write(home, said, me, key=number, value=who["number"], idempotency_key=who["request"], **about)
    write(home, said, reviewer, key=number, value=who["number"], **about)
    write(home, f"{said} Not so.", me, key=number, value=f"1{who['number']}", **about)
    assert write(home, said, me, key=number, value=who["number"], **about)["outcome"] == "refused"
    write(home, f"{said} Maybe.", reviewer, key=city, value=who["city"], provisional=True, **about)
    write(
        home,
        f"{said} Soon.",
        me,
        key=city,
        value=who["city"],
        valid_from=clock.now // 1_000_000 + 999,
        **about,
    )
    write(home, f"{said} Now.", reviewer, key=f"{city}/x", value=who["city"], **about)
    last = write(home, f"{said} No.", me, key=f"{city}/x", value=f"{who['city']}er", **about)
    tool = MemoryTool(home, me)
    file = f"/memories/{who['name']}.md"
    tool.run({"command": "create", "path": file, "file_text": said})
    tool.run({"command": "insert", "path": file, "insert_line": 0, "insert_text": who["city"]})
    home.publish()
    backup(home, folder, 30 * DAYS)
    hold = home.memory(me).hold(
        authority=f"word of {who['by']}", review_by="2040-01-01T00:00:00Z", id=last["id"]
    )
    home.memory(me).release(hold["id"], f"word of {who['by']}")
    home.memory(me).export_subject(who["name"])
    if tenant != "default":
        tokens.create(home, me, None)


def left(home: wiring.Home) -> dict[str, Any]:
    """Every row of every table but the pages of the word index, and every other file, as they may be compared."""
    found: dict[str, Any] = {}
    with home.parts().store.read_whole() as view:
        for (table,) in view.rows("SELECT name FROM sqlite_schema WHERE type = 'table'"):
            if not table.startswith("search"):
                found[table] = [repr(row) for row in view.rows(f"SELECT * FROM {table}")]
    home.close()
    for path in sorted(home.path.rglob("*")):
        if path.is_file() and not path.name.startswith(("store.db", "identities.sqlite")):
            found[path.relative_to(home.path).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def main(folder: Path, which: int, way: str, guard: str) -> None:
    without_chance()
    who, hour = LIVES[which], 3_600_000_000
    tenant = who["request"] if way == "tenant" else "default"
    clock = Clock(1_900_000_000_000_000 // hour * hour)
    (folder / "backups").mkdir()
    home = wiring.open_home(folder / "home", clock=clock)
    live(home, clock, who, tenant, folder / "backups")
    me = with_all_scopes(make_principal(tenant, "default", "cli"))
    ways: dict[str, list[dict[str, Any]]] = {
        "subject": [{"subject": who["name"]}, {"subject": COLLECTION}],
        "all": [{"all": True}],
        "tenant": [{"tenant": True}],
    }
    for selector in ways[way]:
        forget(home, me, guard=guard, **selector)
    home.publish()
    print(json.dumps(left(home)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
