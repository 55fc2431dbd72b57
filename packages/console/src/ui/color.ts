const HEX = /^#[0-9a-f]{6}$/i

/** Colours of databases come from any client, so only plain ones are used. */
export function colorOf(color: string | undefined): string {
  return color !== undefined && (HEX.test(color) || /^[a-z]{3,20}$/i.test(color))
    ? color
    : 'var(--accent)'
}
