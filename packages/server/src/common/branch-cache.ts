/**
 * Options of caches with entries for each branch: what was not used for two minutes is evicted. Most branches live shortly,
 * and what is cached for one that is gone would otherwise stay until thousands of others have followed.
 */
export const BRANCH_CACHE = { ttl: 120_000, ttlAutopurge: true, updateAgeOnGet: true } as const
