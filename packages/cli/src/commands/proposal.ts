import type { Comment, ProposalDetails } from '@offshoot/client'
import { action, createCommand } from '../shared/command.js'
import { UsageError } from '../shared/failure.js'
import { age, ago, notice, oneLine, print, printJson, printTable } from '../shared/output.js'
import { type Target, withBranch, withDatabase } from '../shared/target.js'
import { describeChange, describeOperation } from './diff.js'
import { type MergeFlags, runMerge, withMergeFlags } from './merge.js'

/** `offshoot proposal`: branches that are reviewed before they are merged. */
export const proposalCommand = () =>
  createCommand(
    'proposal',
    'proposals to merge a branch: create, list, show, comment, approve, merge, close, reopen',
  )
    .addCommand(create())
    .addCommand(list())
    .addCommand(show())
    .addCommand(comment())
    .addCommand(approve())
    .addCommand(merge())
    .addCommand(close())
    .addCommand(reopen())

const create = () =>
  withBranch(
    createCommand('create', 'propose to merge a branch', [
      'offshoot proposal create feat-login --title "New prices"',
      'offshoot proposal create feat-login --into staging --title "New prices"',
    ]),
  )
    .argument('[branch]', 'branch to merge; default: the current one')
    .requiredOption('--title <text>', 'what it is about')
    .option('--body <text>', 'a longer text')
    .option('--into <branch>', 'target; default: the source of the branch')
    .action(
      action<{ json?: boolean; title: string; body?: string; into?: string }, [string?]>(
        async (target, { json, title, body, into }, name) => {
          const from = name ?? (await target.branch()).name
          const made = await target.database.propose({
            from,
            title,
            ...(body === undefined ? {} : { body }),
            ...(into === undefined ? {} : { into }),
          })
          if (json) printJson(made)
          else notice(`Made proposal ${made.number}: ${from} into ${made.into ?? 'its target'}.`)
          return 0
        },
      ),
    )

const STATES = ['open', 'merged', 'closed', 'all'] as const

const list = () =>
  withDatabase(createCommand('list', 'list the proposals of a database, newest first').alias('ls'))
    .option('--state <state>', 'open, merged, closed or all; default: open')
    .action(
      action<{ json?: boolean; state?: string }>(async (target, { json, state = 'open' }) => {
        const shown = STATES.find((each) => each === state)
        if (shown === undefined) throw new UsageError(`--state is one of ${STATES.join(', ')}`)
        const proposals = []
        for await (const each of target.database.proposals({ state: shown })) proposals.push(each)
        if (json) printJson(proposals)
        else {
          printTable(
            ['proposal', 'state', 'title', 'from', 'into', 'author', 'age'],
            proposals.map(({ number, title, from, into, author, createdAt, ...each }) => [
              String(number),
              each.state,
              oneLine(title),
              from,
              into ?? '',
              author.email ?? author.id,
              age(createdAt),
            ]),
          )
        }
        return 0
      }),
    )

const show = () =>
  withDatabase(createCommand('show', 'show a proposal: its changes, reviews and comments'))
    .argument('<number>', 'number of the proposal', numberOf)
    .action(
      action<{ json?: boolean }, [number]>(async (target, { json }, number) => {
        const proposal = target.database.proposal(number)
        const details = await proposal.get()
        const { difference, merge: merged } = await proposal.diff()
        const comments: Comment[] = []
        for await (const each of proposal.comments()) comments.push(each)
        if (json) {
          printJson({ ...details, difference, merge: merged, comments })
          return 0
        }
        print(`${describeProposal(details)}\n`)
        for (const operation of difference.schema.operations) {
          print(`${describeOperation(operation)}\n`)
        }
        for (const { name: table, changes, more } of difference.tables) {
          for (const change of changes) print(describeChange({ table, ...change }))
          if (more) print(`and more changes of ${table}\n`)
        }
        if (merged !== undefined) notice(`${merged.conflictCount} conflicts`)
        for (const each of comments) print(`${describeComment(each)}\n`)
        return 0
      }),
    )

function describeProposal(proposal: ProposalDetails): string {
  const { number, state, title, from, into, author, reviews, approvals } = proposal
  const required = proposal.requiredApprovals
  const lines = [
    `Proposal ${number} (${state}): ${oneLine(title)}`,
    `${from} into ${into ?? 'its target'}, by ${author.email ?? author.id}`,
    `approvals: ${approvals}${required > 0 ? ` of ${required}` : ''}`,
    ...reviews.map(({ by, verdict, stale }) => {
      const word = verdict === 'approve' ? 'approved' : 'requested changes'
      return `${by.email ?? by.id} ${word}${stale ? ' (stale)' : ''}`
    }),
  ]
  return proposal.body === '' ? lines.join('\n') : [...lines, '', proposal.body, ''].join('\n')
}

function describeComment({ by, body, table, record, column, createdAt }: Comment): string {
  const place = [table, record, column].filter((part) => part !== undefined).join(' ')
  return `${by.email ?? by.id}, ${ago(createdAt)}${place === '' ? '' : `, on ${place}`}: ${body}`
}

const comment = () =>
  withDatabase(
    createCommand('comment', 'comment on a proposal, a table, a record or a cell', [
      'offshoot proposal comment 3 "Why?" --table items --record tea --column price',
    ]),
  )
    .argument('<number>', 'number of the proposal', numberOf)
    .argument('<text>', 'the comment')
    .option('--table <name>', 'a table')
    .option('--record <id>', 'a record of the table')
    .option('--column <name>', 'a column of the record')
    .action(
      action<
        { json?: boolean; table?: string; record?: string; column?: string },
        [number, string]
      >(async (target, { json, table, record, column }, number, text) => {
        const made = await target.database.proposal(number).comment(text, {
          ...(table === undefined ? {} : { table }),
          ...(record === undefined ? {} : { record }),
          ...(column === undefined ? {} : { column }),
        })
        if (json) printJson(made)
        else notice(`Commented on proposal ${number}.`)
        return 0
      }),
    )

const approve = () =>
  withDatabase(
    createCommand('approve', 'approve a proposal, request changes, or withdraw the own review', [
      'offshoot proposal approve 3',
      'offshoot proposal approve 3 --request-changes --body "Too cheap."',
      'offshoot proposal approve 3 --withdraw',
    ]),
  )
    .argument('<number>', 'number of the proposal', numberOf)
    .option('--body <text>', 'why')
    .option('--revision <number>', 'refuse if the branches have changed since', numberOf)
    .option('--request-changes', 'request changes instead')
    .option('--withdraw', 'withdraw the own review instead')
    .action(
      action<
        {
          json?: boolean
          body?: string
          revision?: number
          requestChanges?: boolean
          withdraw?: boolean
        },
        [number]
      >(async (target, { json, body, revision, requestChanges, withdraw }, number) => {
        if (requestChanges && withdraw) {
          throw new UsageError('use --request-changes or --withdraw, not both')
        }
        const proposal = target.database.proposal(number)
        const review = {
          ...(body === undefined ? {} : { body }),
          ...(revision === undefined ? {} : { revision }),
        }
        const after = withdraw
          ? await proposal.withdraw()
          : requestChanges
            ? await proposal.requestChanges(review)
            : await proposal.approve(review)
        if (json) printJson(after)
        else notice(`Proposal ${number} has ${approvalsOf(after)}.`)
        return 0
      }),
    )

function approvalsOf({ approvals, requiredApprovals }: ProposalDetails): string {
  const of = requiredApprovals > 0 ? ` of ${requiredApprovals}` : ''
  return `${approvals}${of} ${approvals === 1 && of === '' ? 'approval' : 'approvals'}`
}

const merge = () =>
  withMergeFlags(withDatabase(createCommand('merge', 'merge a proposal')))
    .argument('<number>', 'number of the proposal', numberOf)
    .action(
      action<MergeFlags, [number]>(async (target, flags, number) => {
        const proposal = target.database.proposal(number)
        const { from } = await proposal.get()
        return runMerge(flags, {
          announcement: `Merging proposal ${number} on ${target.url}`,
          branch: target.branchNamed(from),
          merge: (options) => proposal.merge(options),
        })
      }),
    )

const close = () => ending('close', 'close a proposal without a merge', 'Closed')
const reopen = () => ending('reopen', 'open a closed proposal again', 'Reopened')

const ending = (name: 'close' | 'reopen', summary: string, word: string) =>
  withDatabase(createCommand(name, summary))
    .argument('<number>', 'number of the proposal', numberOf)
    .action(
      action<{ json?: boolean }, [number]>(async (target: Target, { json }, number) => {
        const after = await target.database.proposal(number)[name]()
        if (json) printJson(after)
        else notice(`${word} proposal ${number}.`)
        return 0
      }),
    )

function numberOf(text: string): number {
  const number = Number(text)
  if (Number.isInteger(number) && number > 0) return number
  throw new UsageError(`[${text}] is not the number of a proposal`)
}
