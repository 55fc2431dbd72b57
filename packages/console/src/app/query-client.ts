import { OffshootError } from '@offshoot/client'
import { MutationCache, QueryCache, QueryClient } from '@tanstack/react-query'
import { SESSION_KEY } from '../api/answers.js'
import { noteAnswer } from './reachable.js'

/** A refused session ends the page; the sign-in page keeps the address. */
const watchAnswers = (error: unknown) => {
  noteAnswer(error)
  if (error instanceof OffshootError && error.code === 'invalid_api_key') {
    void queries.resetQueries({ queryKey: SESSION_KEY })
  }
}

/** All cached answers. */
export const queries = new QueryClient({
  queryCache: new QueryCache({
    onError: (error, query) => {
      if (query.queryKey[0] === SESSION_KEY[0]) noteAnswer(error)
      else watchAnswers(error)
    },
    onSuccess: () => noteAnswer(null),
  }),
  mutationCache: new MutationCache({ onError: watchAnswers }),
  defaultOptions: {
    // The client repeats what is safe to repeat. The service can be reached without the internet, so requests
    // do not wait until the browser thinks that it is online.
    queries: { retry: false, refetchOnWindowFocus: true, networkMode: 'always' },
    mutations: { retry: false, networkMode: 'always' },
  },
})
