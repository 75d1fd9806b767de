"""Completion for bash and zsh, from the parsers: options, and what their values are.

Queues, services and message ids come from the instance itself, by the tools: `omqdump -e L`,
`omstat --json`, `omqdump -e 'l * 200'`; the options that name an instance are passed on. The zsh
functions use the same words through bashcompinit's complete.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from omq.cli.command_table import parser_of
from omq.cli.launch import COMMANDS

_VALUES: Final = {
    "queue": "queues", "QUEUE": "queues", "queues": "queues", "QUEUES": "queues", "q": "queues",
    "SERVICE": "services", "service": "services", "SVC": "services", "svc": "services",
    "ID": "ids", "message": "ids", "DIR": "directories", "FILE": "files", "PLAN": "files",
    "ID|QUEUE": "either", "QUEUE|PEER": "queues", "'LETTER ANSWER...'": "letters"}

_HEAD: Final = r"""# Completion of the omq commands for bash.
_omq_instance() {
    local at
    for ((at = 1; at < COMP_CWORD; at++)); do
        case ${COMP_WORDS[at]} in
        --spool | --conf | --instance)
            printf '%s %s ' "${COMP_WORDS[at]}" "${COMP_WORDS[at + 1]}"
            ;;
        esac
    done
}

_omq_queues() { omqdump $(_omq_instance) -e L 2>/dev/null | grep -v '^Done$'; }

_omq_services() {
    omstat $(_omq_instance) --json 2>/dev/null | sed -n 's/^{"service": "\([^"]*\)".*/\1/p'
}

_omq_ids() {
    omqdump $(_omq_instance) -e 'l * 200' 2>/dev/null | sed -n 's/^\([0-9][0-9]*\) .*/\1/p'
}

_omq_letters() { # a letter of omqdump, and with it a queue where it begins with one
    local letter queue queues=$(_omq_queues)
    for letter in s T L a q 't m' 't q' r c o O i p m d A u; do printf '%s\n' "$letter"; done
    for letter in l v g G f D M C Z; do
        printf '%s\n' "$letter"
        for queue in $queues; do printf '%s %s\n' "$letter" "$queue"; done
    done
}

_omq_reply() { # KIND WORD
    case $1 in
    letters)
        local IFS=$'\n' at
        COMPREPLY=($(compgen -W "$(_omq_letters)" -- "${2#[\'\"]}"))
        [[ $2 == [\'\"]* ]] || for at in "${!COMPREPLY[@]}"; do
            COMPREPLY[at]=${COMPREPLY[at]// /\\ }
        done
        ;;
    either) COMPREPLY=($(compgen -W "$(_omq_ids) $(_omq_queues)" -- "$2")) ;;
    queues) COMPREPLY=($(compgen -W "$(_omq_queues)" -- "$2")) ;;
    services) COMPREPLY=($(compgen -W "$(_omq_services)" -- "$2")) ;;
    ids) COMPREPLY=($(compgen -W "$(_omq_ids)" -- "$2")) ;;
    directories) COMPREPLY=($(compgen -d -- "$2")) ;;
    files) COMPREPLY=($(compgen -f -- "$2")) ;;
    =*) COMPREPLY=($(compgen -W "${1#=}" -- "$2")) ;;
    *) COMPREPLY=() ;;
    esac
}

_omq_complete() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local options positional kind=
    case ${COMP_WORDS[0]##*/} in
"""
_TAIL: Final = r"""    *) return ;;
    esac
    if [[ -n $kind ]]; then
        _omq_reply "$kind" "$word"
    elif [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    else
        _omq_reply "$positional" "$word"
    fi
}

"""


BY_NAME: Final = """# Completion of the omq commands: all of them are in one file.
. "${BASH_SOURCE[0]%/*}/_omq"
"""


_ZSH_TAIL: Final = """
# zsh loads this file when it completes one of these commands for the first time: go on with that.
(( ! ${+compstate} )) || _bash_complete -F _omq_complete
"""


def bash() -> str:
    """The file for bash."""
    lines = [_HEAD]
    for name in COMMANDS:
        lines += _command(name)
    lines += [_TAIL, f"complete -F _omq_complete {' '.join(COMMANDS)}\n"]
    return "".join(lines)


def zsh() -> str:
    """The file for zsh."""
    names = " ".join(COMMANDS)
    body = bash().split("\n", 1)[1]
    return (f"#compdef {names}\n"
            "# Completion of the omq commands for zsh, by the functions for bash."
            f"\nautoload -U +X bashcompinit && bashcompinit\n{body}{_ZSH_TAIL}")


def _command(name: str) -> Iterator[str]:
    parser = parser_of(name)
    options: list[str] = []
    values: list[str] = []
    positional = ""
    for action in parser._actions:
        options += action.option_strings
        kind = _kind(action)
        if action.option_strings and action.nargs != 0:
            names = " | ".join(action.option_strings)
            values.append(f"        {names}) kind={kind or 'none'} ;;\n")
        elif not action.option_strings:
            positional = positional or kind
    yield f"    {name})\n        options='{' '.join(options)}'\n"
    yield f"        positional={positional or 'files'}\n"
    yield "        case $before in\n"
    yield from values
    yield "        esac\n        ;;\n"


def _kind(action: argparse.Action) -> str:
    if action.choices:
        return f"'={' '.join(map(str, action.choices))}'"
    shown = action.metavar if isinstance(action.metavar, str) else action.dest
    return _VALUES.get(shown, _VALUES.get(action.dest, ""))
