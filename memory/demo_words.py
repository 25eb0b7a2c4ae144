"""What the demo reads and prints that is no step of its own: the facts, the needles, the client configurations."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

from tlog.errors import MalformedError


def facts_file(name: str | None) -> bytes:
    """The JSON lines to remember: of the file `name`, else the team's week that comes with the package."""
    try:
        if name is None:
            return files("memory").joinpath("team-week.jsonl").read_bytes()
        return Path(name).read_bytes()
    except OSError as error:
        raise MalformedError(f"expected --facts to be a readable file ({error.strerror})") from None


def subject_needles(data: bytes, subject: str) -> tuple[str, ...]:
    """What a byte scan looks for: the subject's name, and the values and texts of all that is said about it."""
    needles = {subject}
    for line in data.splitlines():
        fact = json.loads(line)
        if fact.get("subject") == subject or subject in fact["text"]:
            needles |= {fact["text"], fact.get("value") or fact["text"]}
    # A short or everyday value would also be found where it has nothing to do with the person.
    return tuple(sorted(needle for needle in needles if len(needle) >= 8))


def manifest_text(data: bytes) -> str:
    """What a deletion manifest says, and what it does not prove, in lines."""
    from memory.manifest import describe_file

    document = describe_file(data)
    systems = ", ".join(f"{one['kind']} {one['result']}" for one in document["systems"])
    checks = ", ".join(f"{one['check']} {one['result']}" for one in document["checks"])
    lines = [
        f"  manifest {document['number']}, state {document['state']}, request {document['request']}",
        *(f"  proved      {one['text']}" for one in document["proved"]),
        *(f"  says        {one['text']}" for one in document["said"]),
        f"  systems     {systems}",
        f"  checks      {checks}",
        *(f"  not proved  {one['text']}" for one in document["not_proved"]),
    ]
    return "\n".join(lines)


def client_configuration() -> str:
    """The exact words to give an MCP client, for a home of one's own."""
    where = str(Path("~/.muniment").expanduser())
    command = str(Path(sys.argv[0]).resolve()) if Path(sys.argv[0]).name == "muniment" else "muniment"
    server = {"command": command, "args": ["mcp"], "env": {"MUNIMENT_HOME": where}}
    return "\n".join(
        [
            "Claude Code:",
            f"  claude mcp add muniment --env MUNIMENT_HOME={where} -- {command} mcp",
            "Claude Desktop (claude_desktop_config.json) and most others:",
            json.dumps({"mcpServers": {"muniment": server}}, indent=2),
            "Any other client: start this over stdio, with the environment above:",
            f"  {command} mcp",
        ]
    )
