import { generateKeyPairSync, sign } from 'node:crypto'

/* A certificate for `localhost` that signs itself, for tests of TLS. */

/** Writes a value of ASN.1. */
function der(tag: number, ...parts: (Buffer | string)[]): Buffer {
  const content = Buffer.concat(parts.map((part) => Buffer.from(part as string)))
  const { length } = content
  const size =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return Buffer.concat([Buffer.from([tag, ...size]), content])
}

const [INTEGER, BITS, BYTES, OID, TEXT, TIME, SEQUENCE, SET] = [2, 3, 4, 6, 12, 23, 0x30, 0x31]
const [FIRST, FOURTH, DNS_NAME, ADDRESS] = [0xa0, 0xa3, 0x82, 0x87]

export function createCertificate(): { readonly cert: string; readonly key: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const algorithm = der(SEQUENCE, der(OID, Buffer.from('2a8648ce3d040302', 'hex')))
  const commonName = der(SEQUENCE, der(OID, Buffer.from('550403', 'hex')), der(TEXT, 'localhost'))
  const name = der(SEQUENCE, der(SET, commonName))
  const alternative = der(
    SEQUENCE,
    der(OID, Buffer.from('551d11', 'hex')),
    der(
      BYTES,
      der(SEQUENCE, der(DNS_NAME, 'localhost'), der(ADDRESS, Buffer.from([127, 0, 0, 1]))),
    ),
  )
  const content = der(
    SEQUENCE,
    der(FIRST, der(INTEGER, Buffer.from([2]))),
    der(INTEGER, Buffer.from([1])),
    algorithm,
    name,
    der(SEQUENCE, der(TIME, '200101000000Z'), der(TIME, '491231235959Z')),
    name,
    publicKey.export({ format: 'der', type: 'spki' }),
    der(FOURTH, der(SEQUENCE, alternative)),
  )
  const signature = sign('sha256', content, privateKey)
  const whole = der(SEQUENCE, content, algorithm, der(BITS, Buffer.from([0]), signature))
  const lines = whole.toString('base64').replace(/.{64}/g, '$&\n')
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ format: 'pem', type: 'pkcs8' }).toString(),
  }
}
