import { expect } from 'vitest'

/*
 * A model counts the versions of a record from its creation. The service may start at a higher number, if the
 * id may have been used before or the branch was reset, but never at one that was used before.
 */
export class RecordVersions {
  /** The highest version of each record that was seen on each branch. */
  readonly #highest = new Map<object, Map<string, number>>()
  /** The first version of a record that the model counts from 0, for each life of a branch. */
  readonly #first = new Map<object, Map<object, number>>()

  /**
   * Compares the version of a record with the count of the model.
   *
   * `branch` stays the same when a branch is reset; `life` ends with a reset. `birth` identifies a record
   * from its creation to its deletion, on all branches that have it.
   */
  compare(
    found: number,
    expected: {
      branch: object
      life: object
      record: string
      birth: object
      count: number
    },
  ): void {
    const { branch, life, record, birth, count } = expected
    const highest = this.#highest.get(branch) ?? new Map<string, number>()
    const first = this.#first.get(life) ?? new Map<object, number>()
    this.#highest.set(branch, highest)
    this.#first.set(life, first)
    const known = first.get(birth)
    const last = highest.get(record) ?? -1
    if (known === undefined) {
      expect(found, `a version of [${record}] was used before`).toBeGreaterThan(last)
      first.set(birth, found - count)
    } else {
      expect(found, `the version of [${record}]`).toBe(known + count)
    }
    highest.set(record, Math.max(last, found))
  }

  /** Returns the version of a record that was compared before. */
  versionOf({ life, birth, count }: { life: object; birth: object; count: number }): number {
    const first = this.#first.get(life)?.get(birth)
    if (first === undefined) throw new Error('the record must have been compared before')
    return first + count
  }
}
