import type { ColumnDefinition } from '@offshoot/client'

type Type = ColumnDefinition['type']

const FROM_TEXT: readonly Type[] = [
  ...(['string', 'text', 'email', 'enum', 'int', 'float', 'decimal'] as const),
  ...(['bool', 'datetime', 'date', 'time', 'uuid', 'multiple'] as const),
]

/** The types that the values of a column can be converted to. A test compares them with those of the server. */
export const CONVERSIONS: Readonly<Record<Type, readonly Type[]>> = {
  string: [...FROM_TEXT, 'link'],
  text: [...FROM_TEXT, 'link'],
  email: FROM_TEXT,
  enum: FROM_TEXT,
  link: ['string', 'text', 'int', 'uuid'],
  int: ['int', 'float', 'decimal', 'string', 'text', 'bool', 'enum', 'json', 'link'],
  float: ['int', 'float', 'decimal', 'string', 'text', 'json'],
  decimal: ['int', 'float', 'decimal', 'string', 'text'],
  bool: ['bool', 'int', 'string', 'text', 'enum', 'json'],
  datetime: ['datetime', 'date', 'string', 'text'],
  date: ['date', 'datetime', 'string', 'text'],
  time: ['time', 'string', 'text'],
  uuid: ['uuid', 'string', 'text', 'link'],
  json: ['text', 'json'],
  multiple: ['multiple', 'json'],
  vector: ['vector'],
  object: [],
  file: [],
  'file[]': [],
}
