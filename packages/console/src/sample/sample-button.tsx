import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { keys } from '../api/answers.js'
import { useDatabases } from '../api/queries.js'
import { useSession } from '../api/session.js'
import { goTo } from '../app/navigate.js'
import { paths } from '../app/paths.js'
import { Button } from '../ui/button.js'
import { notifyError } from '../ui/toasts.js'

/** Makes the sample database, shows how far it is, and opens its branches. */
export function SampleButton({
  workspace,
  kind = 'plain',
}: {
  workspace: string
  kind?: 'plain' | 'primary'
}) {
  const [step, setStep] = useState<number | null>(null)
  const { regions } = useSession()
  const databases = useDatabases(workspace)
  const queries = useQueryClient()
  const make = async () => {
    setStep(0)
    try {
      const { createSample } = await import('./sample.js')
      const database = await createSample(workspace, {
        taken: (databases.data ?? []).map(({ name }) => name),
        region: regions[0]?.id ?? 'local',
        onStep: setStep,
      })
      await queries.invalidateQueries({ queryKey: keys.databases(workspace) })
      goTo(paths.branches({ workspace, database }))
    } catch (error) {
      notifyError(error)
    } finally {
      setStep(null)
    }
  }
  return (
    <Button kind={kind} icon="branch" isBusy={step !== null} onClick={() => void make()}>
      {step === null
        ? 'Make a sample database with branches'
        : `Making the sample: step ${step} of 5`}
    </Button>
  )
}
