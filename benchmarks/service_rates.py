"""Requests a second that `muniment log serve` answers on loopback, and what each costs the server.

    python benchmarks/service_rates.py [--requests 3000]

The client shares the machine, so beside the rate stands the processor time that the server spent: its inverse
is what one core could answer.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from tlog.keys import make_cose_key  # noqa: E402
from tlog.registration import Issuer, Registration, format_registration  # noqa: E402
from tlog.statement import sign_statement  # noqa: E402

ISSUER = "https://issuer.example"


async def ask(port: int, requests: list[bytes]) -> dict[int, int]:
    """How many answers had which status, on one kept connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    statuses: dict[int, int] = {}
    for request in requests:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        await reader.readexactly(int(fields.get(b"content-length", b"0")))
        status = int(head[9:12])
        statuses[status] = statuses.get(status, 0) + 1
    writer.close()
    return statuses


async def ask_all(port: int, requests: list[bytes], connections: int) -> dict[int, int]:
    parts = await asyncio.gather(*(ask(port, requests[n::connections]) for n in range(connections)))
    return {status: sum(part.get(status, 0) for part in parts) for part in parts for status in part}


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode()


def post(body: bytes) -> bytes:
    return b"POST /entries HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def measure(folder: Path, count: int) -> None:
    signer = make_cose_key(folder / "issuer" / "issuer.key")
    rules = folder / "registration.toml"
    rules.write_text(format_registration(Registration(1, (Issuer(ISSUER, signer.key),))))
    program, home = [sys.executable, "-m", "memory.cli"], ["--home", str(folder / "home")]
    subprocess.run([*program, "init", *home], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    command = [*program, "log", "serve", *home, "--json"]
    command += [
        "--listen",
        "127.0.0.1:0",
        "--registration",
        str(rules),
        "--wait",
        "0",
        "--publish-every",
        "2",
    ]
    command += ["--rate", "1000000", "--burst", "1000000"]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    port = int(json.loads(process.stdout.readline())["listening"].rpartition(":")[2])

    def run(name: str, requests: list[bytes], connections: int) -> None:
        spent, began = processor_seconds(process.pid), time.perf_counter()
        statuses = asyncio.run(ask_all(port, requests, connections))
        seconds = time.perf_counter() - began
        spent = (processor_seconds(process.pid) - spent) / len(requests)
        rate = f"{len(requests) / seconds:8.0f}/s on {connections} connections"
        print(f"{name:<16}{rate:<28}{spent * 1e6:7.0f} us of the server each   {statuses}", flush=True)

    statements = [sign_statement(signer, ISSUER, "subject", os.urandom(32)) for _ in range(2 * count)]
    try:
        run("POST", [post(one) for one in statements[:count]], 64)
        run("POST", [post(one) for one in statements[count:]], 500)
        time.sleep(5)
        run("checkpoint", [get("/checkpoint")] * count, 16)
        run("tile", [get("/tile/0/000")] * count, 16)
        run("bundle", [get("/tile/entries/000")] * count, 16)
        names = [urlsafe_b64encode(hashlib.sha256(one).digest()).decode().rstrip("=") for one in statements]
        run("receipt", [get(f"/entries/{name}") for name in names[: count // 3]], 16)
    finally:
        process.terminate()
        process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=3000)
    count = parser.parse_args().requests
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), count)


if __name__ == "__main__":
    main()
