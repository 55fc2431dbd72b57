import type { FastifyReply } from 'fastify'

/** The header of answers that have the id of the entry of the log. */
const ENTRY_HEADER = 'offshoot-entry'

/** Names the entry of the log in the answer, unless it was sent already. */
export const noteEntry = (reply: FastifyReply) => (id: string) => {
  if (!reply.sent) reply.header(ENTRY_HEADER, id)
}
