import { posixTables } from "./posix-script.ts";
import { NAME_COMMANDS, type WordRow } from "./word-table.ts";

export function bashScript(rows: readonly WordRow[]): string {
  return `# Completes capsem in bash. Made by: capsem completions bash
${posixTables(rows)}
_capsem_offer() {
  local cur=$2
  case "$1" in
    ${Object.keys(NAME_COMMANDS).join(" | ")}) COMPREPLY=($(compgen -W "$(_capsem_names "$1" "$3")" -- "$cur")) ;;
    file)
      compopt -o filenames 2>/dev/null
      COMPREPLY=($(compgen -f -- "$cur"))
      ;;
    place)
      compopt -o filenames -o nospace 2>/dev/null
      COMPREPLY=($(compgen -f -- "$cur") $(compgen -S : -W "$(_capsem_names vm "$3")" -- "$cur"))
      ;;
    =*)
      local choices=\${1#=}
      COMPREPLY=($(compgen -W "\${choices//,/ }" -- "$cur"))
      ;;
  esac
}

_capsem() {
  local cur=\${COMP_WORDS[COMP_CWORD]} pending= word i at kind
  local IFS=$' \\t\\n'
  local -a plain=() kinds=()
  local _capsem_options _capsem_kinds _capsem_repeats _capsem_kind _capsem_own=
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=\${COMP_WORDS[i]}
    # An option's = is a word of its own here.
    [[ $word == = && $pending ]] && continue
    if [[ $pending ]]; then
      pending=
      continue
    fi
    [[ $word == -- ]] && return
    if _capsem_value "$word"; then
      pending=$word
    elif [[ $word != -* ]]; then
      plain+=("$word")
    fi
  done
  [[ $cur == = && $pending ]] && cur=
  if [[ $pending ]]; then
    if ! { ((\${#plain[@]} > 1)) && _capsem_row "\${plain[0]} \${plain[1]}"; }; then
      _capsem_row "\${plain[0]-}"
    fi
    _capsem_value "$pending"
    _capsem_offer "$_capsem_kind" "$cur" "\${COMP_WORDS[0]}"
    return
  fi
  if ((\${#plain[@]} == 0)); then
    if [[ $cur == -* ]]; then
      COMPREPLY=($(compgen -W '--help --version --json' -- "$cur"))
    else
      COMPREPLY=($(compgen -W "$_capsem_first" -- "$cur"))
    fi
    return
  fi
  if ((\${#plain[@]} > 1)) && _capsem_row "\${plain[0]} \${plain[1]}"; then
    at=$((\${#plain[@]} - 2))
  elif _capsem_row "\${plain[0]}"; then
    at=$((\${#plain[@]} - 1))
  else
    return
  fi
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$_capsem_options" -- "$cur"))
    return
  fi
  kinds=($_capsem_kinds)
  kind=\${kinds[at]-}
  [[ -z $kind && $_capsem_repeats ]] && kind=\${kinds[\${#kinds[@]} - 1]-}
  _capsem_offer "$kind" "$cur" "\${COMP_WORDS[0]}"
}

complete -F _capsem capsem
`;
}
