"""Runs in yara's environment: how often a word matches in some files.

python yaracheck.py WORD FILE…
"""

from __future__ import annotations

import json
import sys

import yara

RULE = """
rule word {
  strings:
    $plain = "%(word)s" ascii wide nocase
    $base64 = "%(word)s" base64 base64wide
    $xor = "%(word)s" xor(0x01-0xff)
  condition:
    any of them
}
"""


def main() -> None:
    word, *paths = sys.argv[1:]
    rules = yara.compile(source=RULE % {"word": word})
    matches = 0
    for path in paths:
        for match in rules.match(path):
            matches += sum(len(string.instances) for string in match.strings)
    print(json.dumps({"matches": matches, "files": len(paths)}))


if __name__ == "__main__":
    main()
