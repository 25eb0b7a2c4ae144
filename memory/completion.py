"""Shell scripts that complete `muniment` commands, made from the parsers themselves, so they know what those know."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from importlib import import_module
from typing import Final

SHELLS: Final = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True)
class Known:
    """What may follow a path of commands, such as "log serve": further commands, and options with their help."""

    path: str
    commands: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    choices: tuple[str, ...]


def known_commands() -> tuple[Known, ...]:
    """What may follow each command, the command `muniment` itself first."""
    from memory.cli import COMMANDS, _add_common, _Parser

    parser = _Parser(prog="muniment")
    subparsers = parser.add_subparsers(dest="command")
    found = [Known("", tuple(COMMANDS), (), ())]
    for name, (module, add, _, _) in COMMANDS.items():
        getattr(import_module(module), add)(subparsers, *((name,) if module.startswith("memory.") else ()))
        _add_common(subparsers.choices[name])
        found += _below(name, subparsers.choices[name])
    return tuple(found)


def make_script(shell: str) -> str:
    """The script for this shell, to be sourced."""
    known = known_commands()
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](known)


def _below(path: str, parser: argparse.ArgumentParser) -> list[Known]:
    nested: dict[str, argparse.ArgumentParser] = {}
    options: dict[str, str] = {}
    choices: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            nested.update(action.choices)
        elif action.option_strings:
            options |= {name: action.help or "" for name in action.option_strings if name.startswith("--")}
        elif action.choices:
            choices += [str(choice) for choice in action.choices]
    found = [Known(path, tuple(nested), tuple(options.items()), tuple(choices))]
    for name, child in nested.items():
        found += _below(f"{path} {name}", child)
    return found


def _words(known: Known) -> str:
    return " ".join((*known.commands, *known.choices, *(name for name, _ in known.options)))


def _bash(known: tuple[Known, ...]) -> str:
    cases = "\n".join(f'    "{one.path}") words="{_words(one)}" ;;' for one in known)
    paths = " ".join(f'"{one.path}"' for one in known if one.path)
    return f"""# muniment completion for bash
_muniment() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" path="" word known words=""
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    for known in {paths}; do
      if [ "$known" = "${{path:+$path }}$word" ]; then path="$known"; break; fi
    done
  done
  case "$path" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$current"))
}}
complete -o filenames -F _muniment muniment
"""


def _zsh(known: tuple[Known, ...]) -> str:
    return f"""#compdef muniment
# muniment completion for zsh
autoload -U +X bashcompinit && bashcompinit
{_bash(known)}"""


def _fish(known: tuple[Known, ...]) -> str:
    lines = ["# muniment completion for fish", "complete -c muniment -e"]
    tops = " ".join(known[0].commands)
    for one in known:
        parts = one.path.split()
        if not parts:
            condition = f"not __fish_seen_subcommand_from {tops}"
        else:
            condition = "; and ".join(f"__fish_seen_subcommand_from {part}" for part in parts)
            if one.commands:
                condition += f"; and not __fish_seen_subcommand_from {' '.join(one.commands)}"
        for word in (*one.commands, *one.choices):
            lines.append(f"complete -c muniment -n '{condition}' -f -a '{word}'")
        for name, help_text in one.options:
            said = help_text.replace("\\", "\\\\").replace("'", "\\'").replace("%%", "%")
            lines.append(f"complete -c muniment -n '{condition}' -l '{name[2:]}' -d '{said}'")
    return "\n".join(lines) + "\n"
