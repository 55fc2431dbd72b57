import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { App } from './app.js'

/** Shows the console. */
export function start(): void {
  const root = document.getElementById('root')
  if (root === null) return
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  )
}
