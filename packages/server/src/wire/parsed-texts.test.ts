import { LIMITS } from '@offshoot/contract/limits'
import { describe, expect, it } from 'vitest'
import { ParsedTexts, TEXT_LENGTH_MAX } from './parsed-texts.js'

describe('parsed texts', () => {
  const read = 'select name from people where id = $1'
  const create = () => new ParsedTexts(LIMITS)

  it('parses a text once for each database', async () => {
    const texts = create()
    const statements = await texts.read(read, 'shop:main')
    expect(statements).toMatchObject([{ kind: 'query', text: read, parameterCount: 1 }])
    expect(texts.read(read, 'shop:main')).toBe(statements)
    expect(texts.read(read, 'shop:other')).toBeInstanceOf(Promise)
    expect(await texts.read(read, 'shop:other')).toEqual(statements)
  })

  it('reads the name of a database as that of the connection only', async () => {
    const texts = create()
    const query = 'select name from shop.public.people'
    expect(await texts.read(query, 'shop:main')).toMatchObject([
      { text: 'select name from public.people' },
    ])
    expect(await texts.read(query, 'store:main')).toMatchObject([{ text: query }])
  })

  it('keeps texts up to their maximum', async () => {
    const texts = create()
    const longest = `${read} -- `.padEnd(TEXT_LENGTH_MAX, 'x')
    await texts.read(longest, 'shop:main')
    expect(texts.read(longest, 'shop:main')).not.toBeInstanceOf(Promise)
    await texts.read(`${longest}x`, 'shop:main')
    expect(texts.read(`${longest}x`, 'shop:main')).toBeInstanceOf(Promise)
  })

  it('refuses a faulty text each time', async () => {
    const texts = create()
    for (let round = 0; round < 2; round++) {
      await expect(texts.read('select from where', 'shop:main')).rejects.toMatchObject({
        code: '42601',
      })
    }
  })
})
