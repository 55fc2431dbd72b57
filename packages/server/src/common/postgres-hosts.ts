/** A PostgreSQL server of `OFFSHOOT_DATABASE_URL`. */
export interface Host {
  /** Host and port, for messages and metrics. */
  readonly name: string
  /** The address of this server alone. */
  readonly url: string
}

const ADDRESS =
  /^(?<scheme>postgres(?:ql)?:\/\/)(?<user>[^@/?]*@)?(?<hosts>[^/?]*)(?<path>\/[^?]*)?(?:\?(?<query>.*))?$/
const PORT_DEFAULT = '5432'

/** The service writes, so a server that only reads is of no use to it. */
const TARGETS = ['read-write', 'primary']

/**
 * Parses an address, which may name several servers as in libpq:
 * `postgresql://user@a:5432,b:5433/database?target_session_attrs=read-write`, or with lists in the parameters
 * `host` and `port`. Returns undefined if the address is invalid.
 */
export function parseHosts(address: string): readonly Host[] | undefined {
  const groups = ADDRESS.exec(address)?.groups
  if (groups === undefined) return undefined
  const { scheme = '', user = '', hosts = '', path = '', query = '' } = groups
  const parameters = new URLSearchParams(query)
  const target = parameters.get('target_session_attrs')
  const inParameters = parameters.get('host')
  const isList = hosts.includes(',') || inParameters?.includes(',') === true
  if (target === null && !isList) {
    return address.length > scheme.length
      ? [{ name: nameOf(hosts, parameters), url: address }]
      : undefined
  }
  if (target !== null && !TARGETS.includes(target)) return undefined
  const servers =
    inParameters === null ? splitHosts(hosts) : pairPorts(inParameters, parameters.get('port'))
  if (servers === undefined) return undefined
  for (const name of ['target_session_attrs', 'host', 'port']) parameters.delete(name)
  return servers.map(({ host, port }) => {
    const own = new URLSearchParams(parameters)
    // The folder of a socket cannot stand in an address.
    const isSocket = host.startsWith('/')
    if (isSocket) own.set('host', host)
    const rest = own.size === 0 ? '' : `?${own}`
    return {
      name: `${host}:${port}`,
      url: `${scheme}${user}${isSocket ? 'localhost' : host}:${port}${path}${rest}`,
    }
  })
}

function nameOf(hosts: string, parameters: URLSearchParams): string {
  const host = parameters.get('host')
  const [server] = host === null ? (splitHosts(hosts) ?? []) : [{ host, port: PORT_DEFAULT }]
  return server === undefined
    ? `localhost:${PORT_DEFAULT}`
    : `${server.host}:${parameters.get('port') ?? server.port}`
}

interface Server {
  readonly host: string
  readonly port: string
}

function splitHosts(list: string): Server[] | undefined {
  const servers = list.split(',').map((text) => {
    const match = /^(?<host>\[[0-9a-f:.]+\]|[^:[\]]+)(?::(?<port>\d{1,5}))?$/i.exec(text)
    const { host, port = PORT_DEFAULT } = match?.groups ?? {}
    return host === undefined ? undefined : { host, port }
  })
  return servers.every((server) => server !== undefined) ? servers : undefined
}

/** As in libpq, one port is for all hosts, or there are as many ports as hosts. */
function pairPorts(hostList: string, portList: string | null): Server[] | undefined {
  const hosts = hostList.split(',')
  const ports = (portList ?? PORT_DEFAULT).split(',')
  if (ports.length !== 1 && ports.length !== hosts.length) return undefined
  if (hosts.includes('') || !ports.every((port) => /^\d{1,5}$/.test(port))) return undefined
  return hosts.map((host, index) => ({ host, port: ports[index] ?? ports[0] ?? PORT_DEFAULT }))
}
