import type { User } from '@offshoot/contract/users'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

export async function findUser(database: Queryable, userId: string): Promise<User | undefined> {
  const [user] = await database.query<User>(sql`
    select id, email, fullname, image
    from offshoot.users
    where id = ${userId}`)
  return user
}

/**
 * Inserts a user. `assigned_email` is unique and never changes, so no two users can be created with
 * the same address. `email`, which is shown, can be changed by the user to any address.
 */
export async function insertUser(
  database: Queryable,
  user: User & { administrator: boolean },
): Promise<void> {
  await database.query(sql`
    insert into offshoot.users (id, email, assigned_email, fullname, image, administrator)
    values (${user.id}, ${user.email}, ${user.email}, ${user.fullname}, ${user.image},
      ${user.administrator})`)
}

export async function updateUser(database: Queryable, user: User): Promise<User | undefined> {
  const [updated] = await database.query<User>(sql`
    update offshoot.users
    set email = ${user.email}, fullname = ${user.fullname}, image = ${user.image}
    where id = ${user.id}
    returning id, email, fullname, image`)
  return updated
}

export async function deleteUserRow(database: Queryable, userId: string): Promise<void> {
  await database.query(sql`delete from offshoot.users where id = ${userId}`)
}

/** Lists the workspaces whose only owner is the user. */
export async function listWorkspacesOwnedAlone(
  database: Queryable,
  userId: string,
): Promise<string[]> {
  const rows = await database.query<{ workspaceId: string }>(sql`
    select m.workspace_id as "workspaceId"
    from offshoot.members m
    where m.user_id = ${userId} and m.role = 'owner'
      and not exists (
        select from offshoot.members other
        where other.workspace_id = m.workspace_id
          and other.role = 'owner'
          and other.user_id <> m.user_id
      )
    order by m.workspace_id`)
  return rows.map((row) => row.workspaceId)
}

/** Makes the oldest user the administrator if the instance has none. */
export async function updateAdministrator(database: Queryable): Promise<void> {
  await database.query(sql`
    update offshoot.users
    set administrator = true
    where not exists (select from offshoot.users where administrator)
      and id = (select id from offshoot.users order by created_at, id limit 1)`)
}

export async function findFirstUser(database: Queryable): Promise<User | undefined> {
  const [user] = await database.query<User>(sql`
    select id, email, fullname, image
    from offshoot.users
    where administrator
    order by created_at, id
    limit 1`)
  return user
}
