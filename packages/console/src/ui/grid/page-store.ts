/** One page of a source of rows. */
export interface SourcePage<Row> {
  readonly records: readonly Row[]
  readonly cursor: string
  readonly hasMore: boolean
}

/** Reads the page after a cursor; without one, the first page. */
export type ReadPage<Row> = (after: string | undefined, size: number) => Promise<SourcePage<Row>>

interface StoredPage<Row> {
  /** The cursor that this page follows. */
  readonly after: string | undefined
  start: number
  length: number
  cursor: string
  /** Undefined if the page was dropped. */
  records: readonly Row[] | undefined
  isStale: boolean
}

interface PageStoreOptions<Row> {
  readonly firstSize: number
  readonly size: number
  /** Pages with records in memory. Those farthest from the view are dropped. */
  readonly pagesMax: number
  /** Returns whether the source refused the page because it has too many bytes. */
  readonly isTooLarge: (error: unknown) => boolean
  /** The first page, if it is known already. */
  readonly first?: SourcePage<Row> | undefined
}

/**
 * Rows of a source that can only be read page by page, each from the cursor of the one before. Nothing is
 * counted. A page that was dropped is read again from its cursor, so memory does not grow with the number of
 * rows that were passed.
 */
export class PageStore<Row> {
  readonly #read: ReadPage<Row>
  readonly #options: PageStoreOptions<Row>
  #pages: StoredPage<Row>[] = []
  #isComplete = false
  #error: unknown = null
  #view = { first: 0, last: 0 }
  #isReading = false
  #isClosed = false
  #version = 0
  #size: number
  readonly #listeners = new Set<() => void>()

  constructor(read: ReadPage<Row>, options: PageStoreOptions<Row>) {
    this.#read = read
    this.#options = options
    this.#size = options.size
    if (options.first !== undefined) this.#store(0, options.first)
  }

  /** Changes with every change of the rows. */
  get version(): number {
    return this.#version
  }

  /** The number of rows that were passed so far. */
  get knownRows(): number {
    const last = this.#pages.at(-1)
    return last === undefined ? 0 : last.start + last.length
  }

  /** Whether the last row is known. */
  get isComplete(): boolean {
    return this.#isComplete
  }

  get error(): unknown {
    return this.#error
  }

  get loadedRows(): number {
    return this.#pages.reduce((sum, { records }) => sum + (records?.length ?? 0), 0)
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  get(index: number): Row | undefined {
    const page = this.#pages[this.#pageOf(index)]
    return page?.records?.[index - page.start]
  }

  /** Finds a row in memory. */
  find(test: (row: Row) => boolean): Row | undefined {
    for (const { records } of this.#pages) {
      const found = records?.find(test)
      if (found !== undefined) return found
    }
    return undefined
  }

  /** Says which rows are shown, so that they are read. */
  view(first: number, last: number): void {
    this.#view = { first, last }
    void this.#work()
  }

  /** Reads the rows again. Those in view stay visible until the new ones arrive. */
  refresh(): void {
    const { from, to } = this.#wanted()
    this.#pages.forEach((page, index) => {
      page.isStale = true
      if (index < from || index > to) page.records = undefined
    })
    // The page after the last one may exist by now.
    this.#isComplete = false
    this.#error = null
    this.#changed()
    void this.#work()
  }

  /** Tries again after an error. */
  retry(): void {
    this.#error = null
    this.#changed()
    void this.#work()
  }

  /** Reads rows again after `close`: React may run an effect, undo it and run it again. */
  open(): void {
    this.#isClosed = false
    void this.#work()
  }

  /** Ends reading. */
  close(): void {
    this.#isClosed = true
  }

  #pageOf(index: number): number {
    let low = 0
    let high = this.#pages.length - 1
    while (low < high) {
      const middle = Math.ceil((low + high) / 2)
      if ((this.#pages[middle]?.start ?? 0) <= index) low = middle
      else high = middle - 1
    }
    return low
  }

  #wanted(): { from: number; to: number } {
    return { from: this.#pageOf(this.#view.first), to: this.#pageOf(this.#view.last) }
  }

  /** Returns the position of the next page to read; undefined if all that is needed is there. */
  #next(): number | undefined {
    const { from, to } = this.#wanted()
    for (let index = from; index <= to; index++) {
      const page = this.#pages[index]
      if (page !== undefined && (page.records === undefined || page.isStale)) return index
    }
    const isNearEnd = this.#view.last + this.#size >= this.knownRows
    return !this.#isComplete && isNearEnd ? this.#pages.length : undefined
  }

  async #work(): Promise<void> {
    if (this.#isReading) return
    this.#isReading = true
    try {
      for (;;) {
        const index = this.#error === null && !this.#isClosed ? this.#next() : undefined
        if (index === undefined) return
        await this.#readPage(index)
        this.#drop()
        this.#changed()
      }
    } finally {
      this.#isReading = false
    }
  }

  async #readPage(index: number): Promise<void> {
    const known = this.#pages[index]
    const before = this.#pages[index - 1]
    const after = known === undefined ? before?.cursor : known.after
    const size = known?.length || (index === 0 ? this.#options.firstSize : this.#size)
    let answer: SourcePage<Row>
    try {
      answer = await this.#read(after, Math.min(size, this.#size))
    } catch (error) {
      if (this.#options.isTooLarge(error) && this.#size > 1) {
        this.#size = Math.ceil(this.#size / 4)
        return
      }
      this.#error = error
      return
    }
    this.#store(index, answer)
  }

  #store(index: number, { records, cursor, hasMore }: SourcePage<Row>): void {
    const known = this.#pages[index]
    const before = this.#pages[index - 1]
    const start = before === undefined ? 0 : before.start + before.length
    const page: StoredPage<Row> = {
      after: known === undefined ? before?.cursor : known.after,
      start,
      length: records.length,
      cursor,
      records,
      isStale: false,
    }
    const isMoved = known !== undefined && known.cursor !== cursor
    if (records.length === 0) this.#pages.length = index
    else this.#pages[index] = page
    // The following pages were read from a cursor that is no longer the end of this page.
    if (isMoved || !hasMore) this.#pages.length = Math.min(this.#pages.length, index + 1)
    if (index >= this.#pages.length - 1) this.#isComplete = !hasMore
  }

  #drop(): void {
    const { from, to } = this.#wanted()
    const loaded = this.#pages
      .map((page, index) => ({ page, distance: Math.max(from - index, index - to, 0) }))
      .filter(({ page }) => page.records !== undefined)
    const extra = loaded.length - this.#options.pagesMax
    if (extra <= 0) return
    loaded.sort((left, right) => right.distance - left.distance)
    for (const { page, distance } of loaded.slice(0, extra)) {
      // Pages in view stay, however many they are: they would be read again at once.
      if (distance > 0) page.records = undefined
    }
  }

  #changed(): void {
    this.#version++
    for (const listener of this.#listeners) listener()
  }
}
