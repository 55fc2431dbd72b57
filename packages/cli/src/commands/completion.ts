import type { Command } from 'commander'
import { createCommand, plainAction } from '../shared/command.js'
import { UsageError } from '../shared/failure.js'
import { print } from '../shared/output.js'

/** `offshoot completion`: prints the completion script of a shell. */
export const completionCommand = (program: () => Command) =>
  createCommand('completion', 'print the completion script of a shell: bash, zsh or fish', [
    'offshoot completion bash > /etc/bash_completion.d/offshoot',
    'offshoot completion fish > ~/.config/fish/completions/offshoot.fish',
  ])
    .argument('<shell>', 'bash, zsh or fish')
    .action(
      plainAction<object, [string]>(async (_flags, shell) => {
        print(scriptOf(shell, program()))
        return 0
      }),
    )

function scriptOf(shell: string, program: Command): string {
  const top = program.commands.map((command) => command.name())
  const groups = program.commands
    .filter(({ commands }) => commands.length > 0)
    .map((command) => ({
      name: command.name(),
      below: command.commands.map((child) => child.name()),
    }))
  switch (shell) {
    case 'bash':
      return bash(top, groups)
    case 'zsh':
      return `autoload -U +X bashcompinit && bashcompinit\n${bash(top, groups)}`
    case 'fish':
      return [
        `complete -c offshoot -f -n __fish_use_subcommand -a '${top.join(' ')}'`,
        ...groups.map(
          ({ name, below }) =>
            `complete -c offshoot -f -n '__fish_seen_subcommand_from ${name}' -a '${below.join(' ')}'`,
        ),
        '',
      ].join('\n')
    default:
      throw new UsageError(`shell [${shell}] is not known: use bash, zsh or fish`)
  }
}

function bash(
  top: readonly string[],
  groups: readonly { name: string; below: string[] }[],
): string {
  const cases = groups
    .map(({ name, below }) => `    ${name}) words='${below.join(' ')}' ;;`)
    .join('\n')
  return `_offshoot() {
  local words='${top.join(' ')}'
  if [ "$COMP_CWORD" -gt 1 ]; then
    words=''
    case "\${COMP_WORDS[1]}" in
${cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _offshoot offshoot
`
}
