import type { ButtonHTMLAttributes, Ref } from 'react'
import { Icon, type IconName } from './icon.js'

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  readonly kind?: 'plain' | 'primary' | 'danger' | 'quiet'
  readonly icon?: IconName
  /** Work is under way: the button shows it and cannot be pressed. */
  readonly isBusy?: boolean
  readonly ref?: Ref<HTMLButtonElement>
}

export function Button({ kind = 'plain', icon, isBusy = false, children, ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      {...rest}
      className={`button ${kind} ${children === undefined ? 'only-icon' : ''} ${rest.className ?? ''}`}
      disabled={rest.disabled === true || isBusy}
      aria-busy={isBusy}
    >
      {isBusy ? <span className="spinner" /> : icon && <Icon name={icon} />}
      {children}
    </button>
  )
}

/** A button that shows only an icon. `label` is its accessible name and its tooltip. */
export function IconButton({
  label,
  icon,
  ...rest
}: Omit<ButtonProps, 'icon' | 'aria-label' | 'title' | 'children'> & {
  label: string
  icon: IconName
}) {
  return <Button kind="quiet" {...rest} icon={icon} aria-label={label} title={label} />
}
