import { type ComponentProps, type ReactNode, useId } from 'react'

/** A labelled part of a form, with an optional explanation below. */
export function Field({
  label,
  hint,
  children,
}: {
  label: string
  hint?: ReactNode
  children: ReactNode
}) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is the child.
    <label className="field">
      <span>{label}</span>
      {children}
      {hint !== undefined && <small className="faint">{hint}</small>}
    </label>
  )
}

type TextInput = Omit<ComponentProps<'input'>, 'value' | 'onChange'> & {
  readonly label: string
  readonly hint?: ReactNode
  readonly value: string
  readonly onChange: (text: string) => void
}

/** A field with one line of text. Other attributes are those of the input. */
export function TextField({ label, hint, onChange, ...input }: TextInput) {
  return (
    <Field label={label} hint={hint}>
      <input {...input} onChange={(event) => onChange(event.target.value)} />
    </Field>
  )
}

/** A field with several lines of text. */
export function LongTextField({
  label,
  hint,
  value,
  maxLength,
  onChange,
}: Pick<TextInput, 'label' | 'hint' | 'value' | 'maxLength' | 'onChange'>) {
  return (
    <Field label={label} hint={hint}>
      <textarea
        rows={4}
        maxLength={maxLength}
        value={value}
        onChange={(event) => onChange(event.target.value)}
      />
    </Field>
  )
}

/** A field for a number of days, also for parts of a day. */
export function DaysField(field: Omit<TextInput, 'type' | 'min' | 'step'>) {
  return <TextField type="number" min="0" step="any" {...field} />
}

/** A field for a number of things, at least one. */
export function CountField(field: Omit<TextInput, 'type' | 'min' | 'step'>) {
  return <TextField type="number" min="1" step="1" {...field} />
}

/** Suggestions that browsers list without delay. */
const SUGGESTIONS_MAX = 200

/** A field with one line of text, and a list of texts to choose from. */
export function SuggestField({
  suggestions,
  ...field
}: Omit<TextInput, 'list'> & { readonly suggestions: readonly string[] }) {
  const list = useId()
  return (
    <>
      <TextField {...field} list={list} />
      <datalist id={list}>
        {suggestions.slice(0, SUGGESTIONS_MAX).map((text) => (
          <option key={text} value={text} />
        ))}
      </datalist>
    </>
  )
}

export function Checkbox({
  label,
  hint,
  checked,
  onChange,
}: {
  label: string
  hint?: ReactNode
  checked: boolean
  onChange: (checked: boolean) => void
}) {
  return (
    <label className="check">
      <input
        type="checkbox"
        checked={checked}
        onChange={(event) => onChange(event.target.checked)}
      />
      <span>
        {label}
        {hint !== undefined && <small className="faint">{hint}</small>}
      </span>
    </label>
  )
}
