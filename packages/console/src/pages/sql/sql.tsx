import { OffshootError, type SqlArrays } from '@offshoot/client'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { lazy, Suspense, useMemo, useRef, useState } from 'react'
import { keys } from '../../api/answers.js'
import { useBranch, usePlace } from '../../api/place.js'
import { useSchema } from '../../api/queries.js'
import { clientSample, curlSample } from '../../api/samples.js'
import { useRights } from '../../api/session.js'
import { Button } from '../../ui/button.js'
import { CodeButton } from '../../ui/code-samples.js'
import { Dialog } from '../../ui/dialog.js'
import { Empty, ErrorNote, Loading } from '../../ui/feedback.js'
import { Page } from '../../ui/page.js'
import { SqlResult } from './result.js'
import { type PastRun, useRuns } from './runs.js'
import './sql.css'
import { splitStatements, withoutComments } from './statements.js'

/** CodeMirror is loaded when the page is opened. */
const SqlEditor = lazy(() => import('./editor.js'))

/** The page says if there are more. */
const ROWS_SHOWN_MAX = 1000

const READS = /^\s*(\(|select|values|with|table)\b/i

interface Outcome {
  readonly statement: string
  readonly result: SqlArrays
}

/** Runs SQL on the branch. Several statements are one transaction. */
export function SqlPage() {
  const place = usePlace()
  const branch = useBranch()
  const queries = useQueryClient()
  const { canWrite } = useRights()
  const { tables } = useSchema()
  const { runs, add } = useRuns(`${place.workspace}/${place.database}`)
  const [text, setText] = useState(() => runs[0]?.sql ?? '')
  const [dialog, setDialog] = useState<'history'>()
  const [outcomes, setOutcomes] = useState<readonly Outcome[]>()
  const [chosen, setChosen] = useState(0)
  const abort = useRef<AbortController>(undefined)
  const names = useMemo(
    () =>
      Object.fromEntries(
        tables.map(({ name, columns }) => [name, ['id', ...columns.map((column) => column.name)]]),
      ),
    [tables],
  )
  const run = useMutation({
    mutationFn: async (sql: string) => {
      const statements = splitStatements(sql)
      if (statements.length === 0) throw new Error('There is no statement to run')
      abort.current = new AbortController()
      const results = await branch.sql.arrays(
        statements.map((statement) => ({ statement: statement.text })),
        { signal: abort.current.signal, rowsMax: ROWS_SHOWN_MAX },
      )
      return results.map((result, index) => ({
        statement: statements[index]?.text ?? '',
        result,
      }))
    },
    onSuccess: (found, sql) => {
      add({ sql, at: new Date().toISOString() })
      setOutcomes(found)
      setChosen(found.length - 1)
      if (found.some(({ statement }) => !READS.test(withoutComments(statement)))) {
        void queries.invalidateQueries({ queryKey: keys.branch(place) })
      }
    },
  })
  const start = (selected: string) => {
    if (!run.isPending) run.mutate(selected.trim() === '' ? text : selected)
  }
  const outcome = outcomes?.[chosen]
  return (
    <Page
      title="SQL"
      subtitle={`PostgreSQL on ${place.branch}${canWrite ? '' : ', read-only'}`}
      isFull
      actions={
        <>
          <Button icon="clock" onClick={() => setDialog('history')}>
            History
          </Button>
          <SqlCode text={text} />
          {run.isPending ? (
            <Button icon="close" onClick={() => abort.current?.abort()}>
              Cancel
            </Button>
          ) : (
            <Button kind="primary" icon="play" onClick={() => start('')}>
              Run <kbd>Ctrl Enter</kbd>
            </Button>
          )}
        </>
      }
    >
      <div className="sql-page">
        <Suspense fallback={<Loading lines={5} />}>
          <SqlEditor text={text} names={names} onChange={setText} onRun={start} />
        </Suspense>
        <SqlError error={run.error} />
        {outcomes !== undefined && outcomes.length > 1 && (
          <div className="row" role="tablist" aria-label="Results">
            {outcomes.map(({ statement }, index) => (
              <button
                // biome-ignore lint/suspicious/noArrayIndexKey: a statement may be there twice.
                key={index}
                type="button"
                role="tab"
                aria-selected={index === chosen}
                className="button plain sql-tab"
                onClick={() => setChosen(index)}
              >
                <span className="clip">
                  {index + 1}: {withoutComments(statement).slice(0, 40)}
                </span>
              </button>
            ))}
          </div>
        )}
        {run.isPending && outcome === undefined && <Loading lines={4} />}
        {outcome !== undefined && <SqlResult key={chosen} result={outcome.result} />}
        {outcome === undefined && !run.isPending && (
          <Empty icon="code" title="Results appear here">
            Statements see the tables of this branch and nothing else. Several statements, separated
            by semicolons, are one transaction. With a selection, only the selected text is run.
          </Empty>
        )}
      </div>
      {dialog === 'history' && (
        <HistoryDialog
          runs={runs}
          onChoose={(sql) => {
            setText(sql)
            setDialog(undefined)
          }}
          onClose={() => setDialog(undefined)}
        />
      )}
    </Page>
  )
}

function SqlError({ error }: { error: unknown }) {
  if (error instanceof DOMException && error.name === 'AbortError') return null
  const faults = error instanceof OffshootError ? (error.errors ?? []) : []
  return (
    <>
      <ErrorNote error={error} />
      {faults.length > 0 && (
        <ul className="note danger">
          {faults.map(({ index, message }) => (
            <li key={index}>
              Statement {index + 1}: {message}
            </li>
          ))}
        </ul>
      )}
    </>
  )
}

function HistoryDialog({
  runs,
  onChoose,
  onClose,
}: {
  runs: readonly PastRun[]
  onChoose: (sql: string) => void
  onClose: () => void
}) {
  return (
    <Dialog
      title="History"
      description="Statements that ran in this browser."
      onClose={onClose}
      wide
    >
      {runs.length === 0 && <p className="faint">Nothing has run yet.</p>}
      <ul className="sql-history">
        {runs.map(({ sql, at }) => (
          <li key={`${at} ${sql}`}>
            <button type="button" onClick={() => onChoose(sql)}>
              <code className="clip">{sql.slice(0, 300)}</code>
              <time className="faint">{new Date(at).toLocaleString()}</time>
            </button>
          </li>
        ))}
      </ul>
    </Dialog>
  )
}

function SqlCode({ text }: { text: string }) {
  const place = usePlace()
  return (
    <CodeButton
      title="Use these statements elsewhere"
      isDisabled={text.trim() === ''}
      samples={() => {
        const list = splitStatements(text).map((one) => ({ statement: one.text }))
        const [first = { statement: '' }] = list
        const isSingle = list.length <= 1
        const code = isSingle
          ? `const { records } = await client.sql.run(${JSON.stringify(first.statement)})\nconsole.log(records)`
          : `const results = await client.sql.batch(${JSON.stringify(list, null, 2)})\nconsole.log(results)`
        return {
          'Client code': clientSample(place, code),
          curl: isSingle
            ? curlSample(place, '/sql', { body: first })
            : curlSample(place, '/sql/batch', { body: { statements: list } }),
        }
      }}
    />
  )
}
