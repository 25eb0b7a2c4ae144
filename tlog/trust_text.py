"""A trust file as text, in TOML that people can read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tlog.ascii import encode_base64

if TYPE_CHECKING:
    from tlog.certificates import TrustedKey
    from tlog.trust import Trust

VERSION: Final = 1


def format_trust(trust: Trust) -> str:
    """The text of a trust, which `parse_trust` reads back to an equal one."""
    lines = [
        f"version = {VERSION}",
        f"policy = {_quote(trust.policy.text)}",
        f"merge_delay_seconds = {trust.merge_delay_seconds}",
    ]
    if trust.max_checkpoint_age_seconds is not None:
        lines.append(f"max_checkpoint_age_seconds = {trust.max_checkpoint_age_seconds}")
    if trust.same_operator:
        lines.append(f"same_operator = [{', '.join(_quote(name) for name in trust.same_operator)}]")
    for key in trust.keys:
        lines += ["", "[[key]]", *format_key(key)]
    for root in trust.roots:
        lines += ["", "[[root]]", f'cose_key = "{encode_base64(root.key.encode())}"']
        lines += [] if root.store is None else [f"store = {_quote(root.store)}"]
        lines += [f"number = {root.number}"]
    for data in trust.key_lists:
        lines += ["", "[[key_list]]", f'cose = "{encode_base64(data)}"']
    for end in trust.frozen:
        lines += ["", "[[frozen]]", f"origin = {_quote(end.origin)}", f"size = {end.size}"]
        lines += [f'root = "{encode_base64(end.root)}"']
    return "\n".join(lines) + "\n"


def format_key(key: TrustedKey) -> list[str]:
    """The lines of a key, below its [[key]]."""
    lines = [
        f"use = {_quote(key.use)}",
        f'cose_key = "{encode_base64(key.key.encode())}"',
        f"not_before = {key.not_before}",
    ]
    if key.not_after is not None:
        lines.append(f"not_after = {key.not_after}")
    if key.issuer is not None:
        lines.append(f"issuer = {_quote(key.issuer)}")
    if key.until:
        logs = (f"{_escape(origin)} = {size}" for origin, size in key.until)
        lines.append(f"until = {{ {', '.join(logs)} }}")
    return lines


def _quote(text: str) -> str:
    """`text` as a TOML string; one of several lines keeps them, so that people can read a policy."""
    if "\n" not in text:
        return _escape(text)
    return '"""\n' + "\n".join(_escape(line)[1:-1] for line in text.split("\n")) + '"""'


def _escape(text: str) -> str:
    # JSON escapes what TOML wants escaped, save DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
