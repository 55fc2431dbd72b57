import type { AnySchema, Table } from '@offshoot/client'

/** Rows of a request. The progress is known after each of them. */
const BATCH_ROWS = 2000

type InputRow = Readonly<Record<string, unknown>>

export interface StoredRows {
  readonly inserted: number
  /** Records that existed and were changed, or had the values already. */
  readonly updated: number
  readonly failed: number
  /** Refused records, by their number among those that were sent. */
  readonly errors: readonly { readonly index: number; readonly message: string }[]
}

interface StoreOptions {
  readonly signal: AbortSignal
  readonly onProgress: (stored: Omit<StoredRows, 'errors'>) => void
}

/** Inserts rows. Those that are refused do not affect the others. */
export async function insertRows(
  table: Table<AnySchema, string>,
  rows: AsyncIterable<InputRow>,
  { signal, onProgress }: StoreOptions,
): Promise<StoredRows> {
  const { inserted, failed, errors } = await table.insertMany(rows, {
    mode: 'partial',
    signal,
    batchSize: BATCH_ROWS,
    onProgress: (now) => onProgress({ inserted: now.inserted, updated: 0, failed: now.failed }),
  })
  return { inserted, updated: 0, failed, errors }
}

/**
 * Changes the records that have the same id, or the same values in a unique column or constraint, and inserts the others.
 * Rows that are refused do not affect the others.
 */
export async function upsertRows(
  table: Table<AnySchema, string>,
  rows: AsyncIterable<InputRow>,
  { by, signal, onProgress }: StoreOptions & { readonly by: string },
): Promise<StoredRows> {
  const stored = { inserted: 0, updated: 0, failed: 0 }
  const errors: { index: number; message: string }[] = []
  let sent = 0
  for await (const batch of inBatches(rows)) {
    const { results } = await table.upsertMany(batch, { by, signal })
    results.forEach((result, index) => {
      if (result.outcome === 'inserted') stored.inserted++
      else if (result.outcome !== 'failed') stored.updated++
      else {
        stored.failed++
        errors.push({ index: sent + index, message: result.error.message })
      }
    })
    sent += batch.length
    onProgress({ ...stored })
  }
  return { ...stored, errors }
}

async function* inBatches<Item>(items: AsyncIterable<Item>): AsyncGenerator<Item[], void> {
  let batch: Item[] = []
  for await (const item of items) {
    if (batch.push(item) < BATCH_ROWS) continue
    yield batch
    batch = []
  }
  if (batch.length > 0) yield batch
}
