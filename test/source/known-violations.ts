/**
 * Imports against the order of the rooms that are still there. The list may only become shorter: an
 * entry that is no longer needed makes the test fail.
 */
export const KNOWN_VIOLATIONS: readonly string[] = []
