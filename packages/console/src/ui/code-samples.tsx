import { useState } from 'react'
import { Button } from './button.js'
import { Dialog } from './dialog.js'
import './code-samples.css'
import { notify, notifyError } from './toasts.js'

/** Code in several forms, each of which can be copied. */
function CodeSamples({ samples }: { samples: Readonly<Record<string, string>> }) {
  const [chosen, setChosen] = useState(Object.keys(samples)[0] ?? '')
  const code = samples[chosen] ?? ''
  return (
    <div className="stack">
      <div className="row">
        {Object.keys(samples).map((name) => (
          <Button key={name} aria-pressed={name === chosen} onClick={() => setChosen(name)}>
            {name}
          </Button>
        ))}
        <span className="grow" />
        {/* Without TLS, browsers give pages no clipboard. */}
        {navigator.clipboard !== undefined && (
          <Button
            icon="copy"
            kind="primary"
            onClick={() =>
              void navigator.clipboard.writeText(code).then(() => notify('Copied'), notifyError)
            }
          >
            Copy
          </Button>
        )}
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long lines are scrolled with the keyboard. */}
      <pre className="code-sample" tabIndex={0}>
        {code}
      </pre>
    </div>
  )
}

/** A button that shows how a program gets what is on the screen. */
export function CodeButton({
  title,
  samples,
  isDisabled = false,
}: {
  readonly title: string
  /** Called when the dialog is open. */
  readonly samples: () => Readonly<Record<string, string>>
  readonly isDisabled?: boolean
}) {
  const [isOpen, setOpen] = useState(false)
  return (
    <>
      <Button icon="code" disabled={isDisabled} onClick={() => setOpen(true)}>
        Code
      </Button>
      {isOpen && (
        <Dialog
          title={title}
          description="Set OFFSHOOT_API_KEY to an API key with access to this database."
          onClose={() => setOpen(false)}
          wide
        >
          <CodeSamples samples={samples()} />
        </Dialog>
      )}
    </>
  )
}
