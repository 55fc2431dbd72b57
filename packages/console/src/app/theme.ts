export type Theme = 'system' | 'light' | 'dark'

const STORED = 'offshoot.theme'

/** Returns the chosen theme; `system` follows the setting of the operating system. */
export function readTheme(): Theme {
  const stored = localStorage.getItem(STORED)
  return stored === 'light' || stored === 'dark' ? stored : 'system'
}

/** Stores and applies a theme. The style sheet has both colours of everything. */
export function setTheme(theme: Theme): void {
  localStorage.setItem(STORED, theme)
  applyTheme()
}

export function applyTheme(): void {
  const theme = readTheme()
  document.documentElement.style.colorScheme = theme === 'system' ? 'light dark' : theme
}
