import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type FileRow, type Format, readRows } from './read-rows.js'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'offshoot-rows-'))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

async function read(format: Format, text: string) {
  const file = path.join(folder, `file.${format}`)
  await writeFile(file, text)
  const rows: FileRow[] = []
  for await (const row of readRows(file, format)) rows.push(row)
  return rows
}

describe('rows of a CSV file', () => {
  const ROWS = ['id,a', '', '1,"x{n}y"', '', '', '2,"{n}"', '3,b']
  it.each([
    ['\n', 'Unix'],
    ['\r\n', 'Windows'],
    ['\r', 'old Macs'],
  ])('have their lines, with the line breaks %j of %s', async (lineBreak) => {
    const text = ROWS.join(lineBreak).replaceAll('{n}', lineBreak)
    for (const whole of [text, `\ufeff${text}${lineBreak}`]) {
      expect(await read('csv', whole)).toEqual([
        { row: { id: '1', a: `x${lineBreak}y` }, line: 3 },
        { row: { id: '2', a: lineBreak }, line: 7 },
        { row: { id: '3', a: 'b' }, line: 9 },
      ])
    }
  })

  it('have their lines, even if line breaks inside of quotes differ from those outside', async () => {
    const text = 'id,a\r\n1,"x\n\ny"\r\n2,b\r\n'
    expect((await read('csv', text)).map(({ line }) => line)).toEqual([2, 5])
  })

  it('are refused by the line at which they begin', async () => {
    const wide = read('csv', 'id,a\n1,"x\ny"\n\n2,"x\ny",3\n')
    await expect(wide).rejects.toThrow('line 5: not valid CSV: Invalid Record Length')
    const open = read('csv', 'id,a\r\n1,"x\r\ny"\r\n2,"x\r\ny\r\n')
    await expect(open).rejects.toThrow('line 4: not valid CSV: Quote Not Closed')
    await expect(read('csv', '\nid,a,a\n')).rejects.toThrow('line 2: column [a] is there twice')
  })

  it('are none in an empty file, and in one that has only names', async () => {
    expect(await read('csv', '')).toEqual([])
    expect(await read('csv', 'id,a\n')).toEqual([])
  })
})

describe('rows of NDJSON', () => {
  it('have their lines, and end only with a line feed', async () => {
    const text = '\ufeff{"a":1}\r\n\r\n{"a":"x\u2028y"}\n{"a":2}'
    expect(await read('ndjson', text)).toEqual([
      { row: { a: 1 }, line: 1 },
      { row: { a: 'x\u2028y' }, line: 3 },
      { row: { a: 2 }, line: 4 },
    ])
    await expect(read('ndjson', '{"a":1}\n\n{"a"\n')).rejects.toThrow('line 3: not valid JSON')
    await expect(read('ndjson', '{"a":1}\n[1]\n')).rejects.toThrow('line 2: expected a record')
  })

  it('may be longer than a part of the file that is read at once', async () => {
    const long = 'x'.repeat(3 * 1024 * 1024)
    expect(await read('ndjson', `{"a":"${long}"}\n{"a":1}\n`)).toEqual([
      { row: { a: long }, line: 1 },
      { row: { a: 1 }, line: 2 },
    ])
  })
})
