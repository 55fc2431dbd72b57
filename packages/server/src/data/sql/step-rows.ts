/** Stands in a query for the rows that an earlier step of a statement has returned. */
export class StepRows {
  constructor(readonly step: number) {}
}
