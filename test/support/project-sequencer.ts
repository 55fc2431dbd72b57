import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** Projects in the order in which they run. Long files come first, so that no process is left with one. */
const PROJECTS = ['proof', 'e2e', 'console', 'postgres', 'pure']

/**
 * Runs the files of one project after those of another. A process that has loaded the modules of a project
 * is only used again if the next file is of the same project.
 */
export class ProjectSequencer extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ project }: TestSpecification) => PROJECTS.indexOf(project.name)
    return (await super.sort(files)).toSorted((left, right) => rank(left) - rank(right))
  }
}
