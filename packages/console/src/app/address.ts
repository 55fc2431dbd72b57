export interface AddressPlace {
  readonly workspace: string | undefined
  readonly database: string | undefined
  readonly branch: string | undefined
  readonly table: string | undefined
  /** The rest of the address, such as `schema` or `branches`. */
  readonly page: string
}

const FORM =
  /^\/console(?:\/w\/([^/]+)(?:\/db\/([^/]+)(?:\/b\/([^/]+)(?:\/tables\/([^/]+))?)?)?)?(?:\/(.*))?$/

/** Reads workspace, database, branch and table from an address of the console. */
export function parseAddress(path: string): AddressPlace {
  const [, workspace, database, branch, table, page = ''] = FORM.exec(path) ?? []
  return {
    workspace: decode(workspace),
    database: decode(database),
    branch: decode(branch),
    table: decode(table),
    page,
  }
}

function decode(part: string | undefined): string | undefined {
  try {
    return part === undefined ? undefined : decodeURIComponent(part)
  } catch {
    return part
  }
}
