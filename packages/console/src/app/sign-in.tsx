import { useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useEffect, useRef, useState } from 'react'
import { SESSION_KEY } from '../api/answers.js'
import { signIn } from '../api/session.js'
import { Button } from '../ui/button.js'
import { ErrorNote } from '../ui/feedback.js'
import { TextField } from '../ui/field.js'
import { Logo } from './logo.js'

/** Signs in with an API key, or with the link that the start message of the service prints. */
export function SignIn({ error }: { error: unknown }) {
  const queries = useQueryClient()
  const [key, setKey] = useState('')
  const [isBusy, setBusy] = useState(false)
  const [failure, setFailure] = useState<unknown>(error)
  const usedToken = useRef(false)

  const open = async (credentials: { key: string } | { token: string }) => {
    setBusy(true)
    setFailure(null)
    try {
      await signIn(credentials)
      await queries.resetQueries({ queryKey: SESSION_KEY })
    } catch (caught) {
      setFailure(caught)
    } finally {
      setBusy(false)
    }
  }

  useEffect(() => {
    const token = new URLSearchParams(location.hash.slice(1)).get('token')
    if (token === null || usedToken.current) return
    usedToken.current = true
    // The token leaves the address and the history before it is used.
    history.replaceState(null, '', location.pathname + location.search)
    void open({ token })
  })
  useEffect(() => {
    document.title = 'Sign in · Offshoot'
  }, [])

  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (key.trim() !== '') void open({ key: key.trim() })
  }
  return (
    <main className="sign-in">
      <form className="card form" onSubmit={submit}>
        <h1 className="brand">
          <Logo /> Offshoot
        </h1>
        <p className="muted">Sign in to see branches, rows and differences of your databases.</p>
        <TextField
          label="API key"
          hint="The first key is in the file “api-key” of the data folder. The start message also prints a link that signs in once."
          type="password"
          value={key}
          autoComplete="off"
          spellCheck={false}
          placeholder="off_…"
          onChange={setKey}
        />
        <ErrorNote error={failure} />
        <Button type="submit" kind="primary" isBusy={isBusy}>
          Sign in
        </Button>
      </form>
    </main>
  )
}
