import { type ReactNode, useEffect, useState } from 'react'
import { Link } from 'wouter'
import { useBranches, useDatabases, useWorkspaces } from '../api/queries.js'
import { useSession, useSignOut } from '../api/session.js'
import { IconButton } from '../ui/button.js'
import { Icon } from '../ui/icon.js'
import { Menu } from '../ui/menu.js'
import { Switcher } from '../ui/switcher.js'
import { notifyError } from '../ui/toasts.js'
import { Logo } from './logo.js'
import { goTo, href } from './navigate.js'
import { Palette } from './palette.js'
import { paths } from './paths.js'
import { Shortcuts, useShortcuts } from './shortcuts.js'
import { Sidebar } from './sidebar.js'
import { readTheme, setTheme, type Theme } from './theme.js'
import { usePlaceOfAddress } from './use-address.js'

/** The frame of all pages: top bar, sidebar, command palette. */
export function Shell({ children }: { children: ReactNode }) {
  const [isSideOpen, setSideOpen] = useState(false)
  const [isPaletteOpen, setPaletteOpen] = useState(false)
  const [isHelpOpen, setHelpOpen] = useState(false)
  const { page, workspace, database, branch, table } = usePlaceOfAddress()
  const address = [workspace, database, branch, table, page].join('/')
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new address closes the drawer.
  useEffect(() => setSideOpen(false), [address])
  useShortcuts({
    onPalette: () => setPaletteOpen(true),
    onHelp: () => setHelpOpen(true),
  })
  return (
    <div className="shell">
      <a className="skip" href="#main">
        Skip to the content
      </a>
      <TopBar
        onMenu={() => setSideOpen(!isSideOpen)}
        onPalette={() => setPaletteOpen(true)}
        onHelp={() => setHelpOpen(true)}
      />
      <div className="body">
        <Sidebar isOpen={isSideOpen} />
        {isSideOpen && (
          <button
            type="button"
            className="scrim"
            aria-label="Close navigation"
            onClick={() => setSideOpen(false)}
          />
        )}
        <main id="main" tabIndex={-1}>
          {children}
        </main>
      </div>
      {isPaletteOpen && <Palette onClose={() => setPaletteOpen(false)} />}
      {isHelpOpen && <Shortcuts onClose={() => setHelpOpen(false)} />}
    </div>
  )
}

function TopBar({
  onMenu,
  onPalette,
  onHelp,
}: {
  onMenu: () => void
  onPalette: () => void
  onHelp: () => void
}) {
  const session = useSession()
  const signOut = useSignOut()
  const [theme, choose] = useState<Theme>(readTheme)
  const change = (next: Theme) => {
    setTheme(next)
    choose(next)
  }
  return (
    <header className="top">
      <IconButton className="narrow-only" label="Navigation" icon="menu" onClick={onMenu} />
      <Link className="home" href={href(paths.home())} aria-label="Offshoot: all workspaces">
        <Logo />
      </Link>
      <nav className="crumbs" aria-label="Place">
        <PlaceSwitchers />
      </nav>
      <span className="grow" />
      <button type="button" className="button plain find" onClick={onPalette}>
        <Icon name="search" />
        <span className="wide-only">Search or jump to</span>
        <kbd className="wide-only">Ctrl K</kbd>
        <span className="sr-only">Open the command palette</span>
      </button>
      <Menu
        label="Account"
        trigger={<IconButton label="Account" icon="user" />}
        items={[
          {
            label: `${session.user.fullname} · ${session.key ?? 'sign-in link'}`,
            icon: 'user',
            onSelect: () => goTo(paths.keys()),
          },
          { label: 'API keys', icon: 'key', onSelect: () => goTo(paths.keys()) },
          { label: 'Keyboard shortcuts', icon: 'code', onSelect: onHelp },
          {
            label: 'API reference',
            icon: 'file',
            onSelect: () => window.open('/docs', '_blank', 'noopener'),
          },
          { label: 'Light', icon: 'sun', startsGroup: true, onSelect: () => change('light') },
          { label: 'Dark', icon: 'moon', onSelect: () => change('dark') },
          theme !== 'system' && {
            label: 'As the system',
            icon: 'settings',
            onSelect: () => change('system'),
          },
          {
            label: 'Sign out',
            icon: 'out',
            startsGroup: true,
            onSelect: () => void signOut().catch(notifyError),
          },
        ]}
      />
    </header>
  )
}

/** Workspace, database and branch of the page, each with a list to switch to another. */
function PlaceSwitchers() {
  const { workspace, database, branch, page, table } = usePlaceOfAddress()
  const workspaces = useWorkspaces()
  const databases = useDatabases(workspace)
  const region = databases.data?.find(({ name }) => name === database)?.region
  const branches = useBranches(
    workspace === undefined || database === undefined || region === undefined
      ? undefined
      : { workspace, database, region },
  )
  if (workspace === undefined) return null
  const name = workspaces.data?.find(({ id }) => id === workspace)?.name ?? workspace
  return (
    <>
      <Switcher
        className="crumb-workspace"
        label="Workspace"
        current={name}
        choices={(workspaces.data ?? []).map((one) => ({
          id: one.id,
          text: one.name,
          hint: one.id,
        }))}
        onChoose={({ id }) => goTo(paths.workspace(id))}
      />
      {database !== undefined && (
        <>
          <span className="crumb-line">/</span>
          <Switcher
            className="crumb-database"
            label="Database"
            current={database}
            choices={(databases.data ?? []).map((one) => ({ id: one.name, text: one.name }))}
            onChoose={({ id }) => goTo(paths.branches({ workspace, database: id }))}
            footer={
              <Link className="popover-foot" href={href(paths.workspace(workspace))}>
                All databases
              </Link>
            }
          />
        </>
      )}
      {database !== undefined && branch !== undefined && (
        <>
          <span className="crumb-line">/</span>
          <Switcher
            label="Branch"
            current={
              <>
                <Icon name="branch" /> {branch}
              </>
            }
            choices={(branches.data ?? []).map((one) => ({ id: one.name, text: one.name }))}
            onChoose={({ id }) => {
              const base = paths.branch({ workspace, database, branch: id })
              // Keeps the page, and changes the branch.
              goTo(
                table === undefined
                  ? `${base}/${page}`
                  : paths.table({ workspace, database, branch: id }, table),
              )
            }}
            footer={
              <Link className="popover-foot" href={href(paths.branches({ workspace, database }))}>
                All branches
              </Link>
            }
          />
        </>
      )}
    </>
  )
}
