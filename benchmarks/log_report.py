"""Of a run of log_rates.py: the machine it ran on, what was aimed at and reached, and the table."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from cryptography.hazmat.backends.openssl import backend

NAMES = {"muniment": None, "pymerkle": "pymerkle", "aics-tlog": "aics-tlog", "inspeximus": "inspeximus"}


def machine(place: Path, pythons: dict[str, str]) -> dict[str, Any]:
    """Hardware, file system and versions, and how busy it was when the run began."""
    import apsw

    packages = {name: version(name) for name in ("cryptography", "apsw")}
    packages["openssl"] = backend.openssl_version_text()
    packages["sqlite"] = apsw.sqlite_lib_version()
    peers = {
        name: _version(pythons[name], package)
        for name, package in NAMES.items()
        if package and name in pythons
    }
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "file_system": _file_system(place),
        "load": [round(one, 2) for one in os.getloadavg()],
        "python": platform.python_version(),
        "packages": packages,
        "peers": peers,
    }


def _version(python: str, package: str) -> str:
    code = f"import platform, importlib.metadata as m; print(m.version({package!r}), 'on', platform.python_version())"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _file_system(place: Path) -> str:
    """The type of the file system that holds the folder: on tmpfs, flushing costs nothing."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return "unknown"
    above = [(fields[1], fields[2]) for fields in mounts if place.resolve().is_relative_to(fields[1])]
    return max(above, key=lambda one: len(one[0]), default=("", "unknown"))[1]


def targets(results: dict[str, Any]) -> list[dict[str, Any]]:
    """What was aimed at, what was found, and whether that is enough."""
    ours = next(row for row in results["append"] if (row["system"], row["batch"]) == ("muniment", 1024))
    sizes, proofs, replay = results["sizes"], results["proofs"], results["replay"]
    peak = results["writer_peak_bytes"] / 1e6
    rows = [
        (
            "appends of 1,024, to raw signing",
            ">=",
            0.5,
            ours["share_of_signing"],
            ours["share_of_signing_cpu"],
        ),
        (
            "rate at the end, to that at ten thousand",
            ">=",
            1.0,
            sizes["large_to_small"],
            sizes["large_to_small_cpu"],
        ),
        ("inclusion proof, median ms", "<=", 1.0, proofs["prove_median_ms"], None),
        ("verification of a proof, us, without its signature", "<=", 100.0, proofs["verify_median_us"], None),
        ("peak memory of the writer, MB", "<=", 150.0, peak, None),
        (
            "replay by two, to twice one core's verifying",
            ">=",
            0.8,
            replay["share_of_twice_one"],
            replay["share_of_verifying_cpu"],
        ),
    ]
    return [
        {
            "what": what,
            "wanted": f"{sign} {bound:g}",
            "found": round(found, 3),
            "found_in_cpu_time": None if cpu is None else round(cpu, 3),
            "met": found >= bound if sign == ">=" else found <= bound,
        }
        for what, sign, bound, found, cpu in rows
    ]


def signing_rate(results: dict[str, Any], name: str) -> float:
    """What signing alone reached between the append rounds, in the middle."""
    return median(row[name] for row in results["append"])


def show(results: dict[str, Any]) -> None:
    """The table."""
    where = results["machine"]
    versions = ", ".join(f"{name} {one}" for name, one in {**where["packages"], **where["peers"]}.items())
    print(f"{results['date']}  {where['processor']}, {where['cores']} cores, {where['kernel']}", end="")
    print(f", {where['file_system']}, load {where['load'][0]}")
    print(f"Python {where['python']}, {versions}")
    print(f"Entries of {results['entry_bytes']} bytes, each signed. {results['durability']}")
    for name, why in results["skipped"].items():
        print(f"skipped: {name}: {why}")
    _show_appends(results)
    _show_proofs([*results["small_proofs"], results["proofs"]])
    _show_replay(results["replay"])
    print(f"\n{'aim':<52}{'wanted':>9}{'found':>9}{'in CPU time':>13}")
    for row in results["targets"]:
        met, cpu = "met" if row["met"] else "MISSED", row["found_in_cpu_time"]
        print(f"{row['what']:<52}{row['wanted']:>9}{row['found']:>9}{'' if cpu is None else cpu:>13}  {met}")


def _show_appends(results: dict[str, Any]) -> None:
    sizes = results["sizes"]
    signing, cpu = (signing_rate(results, name) for name in ("signing_per_second", "signing_per_cpu_second"))
    print(f"\nraw Ed25519 between the rounds: {signing:,.0f} signed/s, {cpu:,.0f} a CPU second")
    print(f"\n{'appends':<13}{'batch':>6}{'entries/s':>11}{'of signing':>12}", end="")
    print(f"{'a CPU s':>10}{'of signing':>12}{'log size':>11}")
    for row in results["append"]:
        print(
            f"{row['system']:<13}{row['batch']:>6}{row['per_second']:>11,.0f}{row['share_of_signing']:>12.1%}",
            end="",
        )
        print(
            f"{row['per_cpu_second']:>10,.0f}{row['share_of_signing_cpu']:>12.1%}{row['size_at_the_end']:>11,}"
        )
    print()
    for name in ("small", "large"):
        row = sizes[name]
        print(f"  {row['per_second']:,.0f}/s up to {row['size_at_the_end']:,} entries", end=";")
    print(f" ratio {sizes['large_to_small']:.2f}, of CPU time {sizes['large_to_small_cpu']:.2f}")


def _show_proofs(rows: list[dict[str, Any]]) -> None:
    print(
        f"\n{'proofs':<13}{'log size':>11}{'median ms':>11}{'p99 ms':>9}{'verify us':>11}{'p99 us':>9}{'peak MB':>9}"
    )
    for row in rows:
        print(
            f"{row['system']:<13}{row['size']:>11,}{row['prove_median_ms']:>11.3f}{row['prove_p99_ms']:>9.3f}",
            end="",
        )
        print(f"{row['verify_median_us']:>11.1f}{row['verify_p99_us']:>9.1f}{row['peak_bytes'] / 1e6:>9.1f}")


def _show_replay(replay: dict[str, Any]) -> None:
    one, two = replay["verify_one_process_per_second"], replay["verify_two_processes_per_second"]
    print(f"\nreplay of {replay['size']:,}: {replay['per_second']:,.0f} entries/s by two processes.")
    print(f"  verifying alone: {one:,.0f}/s by one process, {two:,.0f}/s by two at once.")
    print(
        f"  {replay['share_of_twice_one']:.1%} of twice one, {replay['share_of_two_processes']:.1%} of two,",
        end="",
    )
    print(f" {replay['share_of_verifying_cpu']:.1%} in CPU time")
