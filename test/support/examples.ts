/** A block of code in documentation. */
export interface CodeBlock {
  /** The file and the line of the first line of code, for messages. */
  readonly place: string
  readonly code: string
}

/** Finds the `@example` blocks in the doc comments of a source file. */
export function findExamples(file: string, text: string): CodeBlock[] {
  const lines = text.split('\n')
  const blocks: CodeBlock[] = []
  for (const [index, line] of lines.entries()) {
    if (!/^\s*\* @example\s*$/.test(line)) continue
    const start = lines.findIndex((each, at) => at > index && /^\s*\* ```ts$/.test(each)) + 1
    const end = lines.findIndex((each, at) => at > start && /^\s*\* ```$/.test(each))
    const code = lines.slice(start, end).map((each) => each.replace(/^\s*\* ?/, ''))
    blocks.push({ place: `${file}:${start + 1}`, code: code.join('\n') })
  }
  return blocks
}

/** Finds the blocks of a language in a Markdown file. */
export function findBlocks(file: string, text: string, language: string): CodeBlock[] {
  const blocks: CodeBlock[] = []
  const pattern = new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, 'gm')
  for (const match of text.matchAll(pattern)) {
    const line = text.slice(0, match.index).split('\n').length + 1
    blocks.push({ place: `${file}:${line}`, code: match[1] ?? '' })
  }
  return blocks
}

/** Finds methods and exported functions of a source file whose doc comment has no example. */
export function findWithoutExample(file: string, text: string): string[] {
  const lines = text.split('\n')
  return lines.flatMap((line, index) => {
    const name =
      /^ {2}(?:async )?\*?(\w+)(?:<.*)?\(/.exec(line)?.[1] ??
      /^export (?:async )?function\*? (\w+)/.exec(line)?.[1]
    if (name === undefined || name === 'constructor') return []
    const comment = commentAbove(lines, index)
    return comment.includes('@example') ? [] : [`${file}:${index + 1} ${name}`]
  })
}

function commentAbove(lines: readonly string[], index: number): string {
  if (!lines[index - 1]?.trim().endsWith('*/')) return ''
  let start = index - 1
  while (start > 0 && !lines[start]?.trim().startsWith('/**')) start--
  return lines.slice(start, index).join('\n')
}

/** Separates the imports of a block from the rest, because a function cannot contain them. */
export function splitImports(code: string): { imports: string; body: string } {
  const imports: string[] = []
  const body = code.replaceAll(/^import [^;]*? from '[^']+'\n/gm, (match) => {
    imports.push(match)
    return ''
  })
  return { imports: imports.join(''), body }
}
