import { posixTables } from "./posix-script.ts";
import { NAME_COMMANDS, type WordRow } from "./word-table.ts";

/** What is offered is found by a function that needs no line editor, so that a test can ask it. */
export function zshScript(rows: readonly WordRow[]): string {
  return `#compdef capsem
# Completes capsem in zsh. Made by: capsem completions zsh
${posixTables(rows)}
# Kind in _capsem_kind; a choice or VMs in reply. Arguments: the words before the current one, and the current one.
_capsem_find() {
  emulate -L zsh
  local cur=\${@[-1]} pending= word at
  local -a plain kinds
  _capsem_own=
  reply=()
  _capsem_kind=choice
  for word in \${@[2,-2]}; do
    if [[ -n $pending ]]; then
      pending=
      continue
    fi
    if [[ $word == -- ]]; then
      _capsem_kind=other
      return
    fi
    if _capsem_value $word; then
      pending=$word
    elif [[ $word != -* ]]; then
      plain+=($word)
    fi
  done
  if [[ -n $pending ]]; then
    if ! { ((\${#plain} > 1)) && _capsem_row "\${plain[1]} \${plain[2]}"; }; then
      _capsem_row "\${plain[1]-}"
    fi
    _capsem_value $pending
    _capsem_list $1
    return
  fi
  _capsem_kind=choice
  if ((\${#plain} == 0)); then
    if [[ $cur == -* ]]; then reply=(--help --version --json); else reply=(\${=_capsem_first}); fi
    return
  fi
  if ((\${#plain} > 1)) && _capsem_row "\${plain[1]} \${plain[2]}"; then
    at=$((\${#plain} - 1))
  elif _capsem_row "\${plain[1]}"; then
    at=\${#plain}
  else
    _capsem_kind=other
    return
  fi
  if [[ $cur == -* ]]; then
    reply=(\${=_capsem_options})
    return
  fi
  kinds=(\${=_capsem_kinds})
  _capsem_kind=\${kinds[at]}
  [[ -z $_capsem_kind && -n $_capsem_repeats ]] && _capsem_kind=\${kinds[-1]}
  _capsem_list $1
}

_capsem_list() {
  case $_capsem_kind in
    place) reply=(\${(f)"$(_capsem_names vm $1)"}) ;;
    ${Object.keys(NAME_COMMANDS).join(" | ")}) reply=(\${(f)"$(_capsem_names $_capsem_kind $1)"}) ;;
    # Quoted: a bare = names a program's path in zsh.
    '='*)
      reply=(\${(s:,:)\${_capsem_kind#=}})
      _capsem_kind=choice
      ;;
  esac
}

_capsem() {
  local -a reply
  local _capsem_kind _capsem_options _capsem_kinds _capsem_repeats _capsem_own
  _capsem_find "\${(@)words[1,CURRENT]}"
  case $_capsem_kind in
    file) _files ;;
    place)
      compadd -S : -- $reply
      _files
      ;;
    choice | ${Object.keys(NAME_COMMANDS).join(" | ")}) compadd -- $reply ;;
  esac
}

# Sourced, or found by its name in the function path.
if [[ \${zsh_eval_context[-1]} == loadautofunc ]]; then
  _capsem "$@"
elif whence -w compdef >/dev/null; then
  compdef _capsem capsem
fi
`;
}
