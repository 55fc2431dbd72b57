import { EventEmitter } from 'node:events'
import type pg from 'pg'
import { expect, it } from 'vitest'
import { MessageWriter } from './message-writer.js'
import { handOnRows, readRowsOn } from './row-messages.js'

/* A connection receives messages in chunks of any size. */

const row = (text: string) => new MessageWriter('D').int16(1).value(text).toBuffer()
const complete = new MessageWriter('C').text('SELECT 1').toBuffer()
const ready = new MessageWriter('Z').letter('I').toBuffer()

/** Returns a connection, and what reads the messages that are not handed on. */
function connect() {
  const stream = new EventEmitter()
  const passed: Buffer[] = []
  const connection = { stream }
  stream.on('data', (bytes: Buffer) => passed.push(Buffer.from(bytes)))
  handOnRows({ connection } as unknown as pg.ClientBase)
  return {
    connection,
    receive: (chunk: Buffer) => stream.emit('data', chunk),
    passed: () => Buffer.concat(passed),
  }
}

it('hands on rows of the statements that want them, however their bytes arrive', () => {
  const rows = ['', 'a', 'x'.repeat(300), 'ü'.repeat(7_000)].map(row)
  const answer = Buffer.concat([row('before'), complete, ...rows, complete, row('after'), ready])
  for (const size of [1, 2, 3, 4, 5, 7, 64, 1000, answer.length]) {
    const { connection, receive, passed } = connect()
    const taken: Buffer[] = []
    // Of three statements, the second one wants its rows as messages.
    const isSecond = () => passed().equals(Buffer.concat([row('before'), complete]))
    readRowsOn(connection, {
      rowReceiver: () => (isSecond() ? (message) => taken.push(message) : undefined),
    })
    for (let at = 0; at < answer.length; at += size) receive(answer.subarray(at, at + size))
    expect(taken, `chunks of ${size}`).toEqual(rows)
    const rest = [row('before'), complete, complete, row('after'), ready]
    expect(passed(), `chunks of ${size}`).toEqual(Buffer.concat(rest))
  }
})

it('passes all messages if nobody wants rows', () => {
  const { connection, receive, passed } = connect()
  const answer = Buffer.concat([row('a'), complete, ready])
  readRowsOn(connection, undefined)
  receive(answer)
  expect(passed()).toEqual(answer)
})

it('refuses a message whose length is impossible', () => {
  const { receive } = connect()
  expect(() => receive(Buffer.from([68, 0, 0, 0, 3, 0]))).toThrow('invalid length of a message')
})
