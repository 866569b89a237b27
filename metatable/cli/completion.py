"""`metatable completion bash|zsh|fish`: a script that completes verbs, options and their choices.

It is made from the parsers, and asks nobody while you type. Files are completed elsewhere:

    eval "$(metatable completion bash)"          in ~/.bashrc
    eval "$(metatable completion zsh)"           in ~/.zshrc, behind compinit
    metatable completion fish > ~/.config/fish/completions/metatable.fish
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from metatable.cli.verb import FINE, HelpFormatter, Verbs, to_json

__all__ = ["register"]


def register(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    told = "print a script that completes verbs and options in a shell"
    parser = verbs.add_parser("completion", help=told, description=told)
    parser.formatter_class = HelpFormatter
    parser.epilog = f"for example:{(__doc__ or '').partition('elsewhere:')[2].rstrip()}"
    parser.add_argument("shell", choices=tuple(_SHELLS))
    parser.add_argument("--json", action="store_true", help="print it within JSON")
    parser.set_defaults(run=_completion)


def _completion(args: argparse.Namespace) -> int:
    script = _SHELLS[args.shell](list(_commands(args.program)))
    print(to_json({"shell": args.shell, "script": script}) if args.json else script)
    return FINE


@dataclass(frozen=True, slots=True)
class _Command:
    """A verb, or all of them: its words, what may follow."""

    words: tuple[str, ...]
    verbs: dict[str, str]
    """Its verbs, and what they do."""
    options: dict[str, str]
    choices: dict[str, tuple[str, ...]]
    """What may stand behind an option; of "" in its place."""
    values: tuple[str, ...]
    """Options that a value follows."""


def _commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[_Command]:
    verbs: dict[str, str] = {}
    options: dict[str, str] = {}
    choices: dict[str, tuple[str, ...]] = {}
    values: list[str] = []
    inner: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            verbs = {one.dest: one.help or "" for one in action._choices_actions}
            inner = list(action.choices.items())
            continue
        for name in action.option_strings or [""]:
            if name:
                options[name] = (action.help or "").partition(";")[0]
            if action.choices:
                choices[name] = tuple(map(str, action.choices))
            if name and action.nargs != 0:
                values.append(name)
    yield _Command(words, verbs, options, choices, tuple(values))
    for name, one in inner:
        yield from _commands(one, (*words, name))


def _bash(commands: list[_Command]) -> str:
    """Works in the bash of macOS (3.2) as well."""
    return "\n".join(
        [
            "_metatable() {",
            '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"',
            '    local path="" words="" word place',
            "    for ((place = 1; place < COMP_CWORD; place++)); do",
            '        word="${COMP_WORDS[place]}"',
            f'        case "$path $word" in {_paths(commands)}) path="$path $word" ;; esac',
            "    done",
            '    case "$path $prev" in',
            *_behind_options(commands),
            "    esac",
            '    case "$path" in',
            *_at(commands),
            "    esac",
            '    COMPREPLY=($(compgen -W "$words" -- "$cur"))',
            "}",
            "complete -o default -o bashdefault -F _metatable metatable",
        ]
    )


def _paths(commands: list[_Command]) -> str:
    return "|".join(f'"{_path(one)}"' for one in commands if one.words)


def _path(command: _Command) -> str:
    return "".join(f" {word}" for word in command.words)


def _behind_options(commands: list[_Command]) -> Iterator[str]:
    """What stands behind an option: one of its choices, or a file, which bash knows."""
    for one in commands:
        for name in one.values:
            found = " ".join(one.choices.get(name, ()))
            reply = f'COMPREPLY=($(compgen -W "{found}" -- "$cur"))' if found else "COMPREPLY=()"
            yield f'        "{_path(one)} {name}") {reply}; return ;;'


def _at(commands: list[_Command]) -> Iterator[str]:
    """Verbs and choices at once, options behind a dash."""
    for one in commands:
        words = " ".join([*one.verbs, *one.choices.get("", ())])
        options = " ".join(one.options)
        yield f'        "{_path(one)}") words="{words}"; [[ $cur == -* ]] && words="{options}" ;;'


def _zsh(commands: list[_Command]) -> str:
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash(commands)}"


def _fish(commands: list[_Command]) -> str:
    lines = []
    for one in commands:
        where = " ".join(f"; and __fish_seen_subcommand_from {word}" for word in one.words)
        others = " ".join(one.verbs)
        unless = f"; and not __fish_seen_subcommand_from {others}" if others else ""
        begin = f"complete -c metatable -n {shlex.quote(f'true{where}{unless}')}"
        lines += [f"{begin} -f -a {name} -d {_quoted(told)}" for name, told in one.verbs.items()]
        if one.choices.get(""):
            lines.append(f"{begin} -f -a {shlex.quote(' '.join(one.choices['']))}")
        for name, told in one.options.items():
            spelled = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            found = one.choices.get(name)
            value = f" -x -a {shlex.quote(' '.join(found))}" if found else ""
            value = value or (" -r" if name in one.values else "")
            lines.append(f"{begin} {spelled}{value} -d {_quoted(told)}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """For fish, which knows a backslash within single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", " ") + "'"


_SHELLS: dict[str, Callable[[list[_Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
