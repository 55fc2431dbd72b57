import { BranchSchema } from '@offshoot/contract/branches'
import { DatabaseSchema } from '@offshoot/contract/databases'
import { ErrorBodySchema } from '@offshoot/contract/errors'
import {
  ColumnSchema,
  ConstraintSchema,
  SchemaSchema,
  TableSchema,
} from '@offshoot/contract/schema'
import { SchemaOperationSchema } from '@offshoot/contract/schema-edits'
import { UserSchema } from '@offshoot/contract/users'
import { InviteSchema, WorkspaceSchema } from '@offshoot/contract/workspaces'

/** Schemas that others refer to by name. */
export const SHARED_SCHEMAS = [
  ErrorBodySchema,
  ColumnSchema,
  ConstraintSchema,
  TableSchema,
  SchemaSchema,
  SchemaOperationSchema,
  BranchSchema,
  DatabaseSchema,
  UserSchema,
  WorkspaceSchema,
  InviteSchema,
]
