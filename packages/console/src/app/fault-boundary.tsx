import { Component, type ReactNode } from 'react'
import { Button } from '../ui/button.js'
import { ErrorNote } from '../ui/feedback.js'

/**
 * Shows an error of a page in its place, for example if its code could not be loaded. `address` is the
 * address of the page: another page starts without the error.
 */
export class FaultBoundary extends Component<
  { address: string; children: ReactNode },
  { error: unknown; address: string }
> {
  override state = { error: null as unknown, address: this.props.address }

  static getDerivedStateFromError(error: unknown) {
    return { error }
  }

  static getDerivedStateFromProps(
    { address }: { address: string },
    state: { error: unknown; address: string },
  ) {
    return address === state.address ? null : { error: null, address }
  }

  override render() {
    if (this.state.error === null) return this.props.children
    return (
      <div className="page">
        <ErrorNote error={this.state.error} />
        <div>
          <Button kind="primary" onClick={() => location.reload()}>
            Load the page again
          </Button>
        </div>
      </div>
    )
  }
}
