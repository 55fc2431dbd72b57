// A shop in Prisma: `prisma db push` creates its tables, and the client without engine uses them. The schema engine is the
// one of WebAssembly, because the other one is a download.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { PrismaPg } from '@prisma/adapter-pg'

writeFileSync(
  'schema.prisma',
  `generator client {
  provider = "prisma-client-js"
  output = "./generated"
  engineType = "client"
}
datasource db {
  provider = "postgresql"
  url = env("DATABASE_URL")
}
enum Role {
  USER
  ADMIN
}
model User {
  id Int @id @default(autoincrement())
  email String @unique
  name String?
  role Role @default(USER)
  createdAt DateTime @default(now())
  posts Post[]
  profile Profile?
}
model Profile {
  id String @id @default(uuid()) @db.Uuid
  bio String @db.VarChar(200)
  user User @relation(fields: [userId], references: [id], onDelete: Cascade)
  userId Int @unique
}
model Post {
  id Int @id @default(autoincrement())
  title String
  published Boolean @default(false)
  price Decimal @default(0) @db.Decimal(10, 2)
  meta Json?
  tags String[]
  views BigInt @default(0)
  author User? @relation(fields: [authorId], references: [id])
  authorId Int?
  @@index([authorId])
}
`,
)
writeFileSync(
  'prisma.config.mjs',
  `import { PrismaPg } from '@prisma/adapter-pg'
import pg from 'pg'
import { defineConfig } from 'prisma/config'
// The adapter refuses the types "char" and name of the catalogue, also those of PostgreSQL itself.
const TEXTS = { 18: 25, 19: 25, 1002: 1009, 1003: 1009 }
const asTexts = (result) => {
  for (const field of result?.fields ?? []) field.dataTypeID = TEXTS[field.dataTypeID] ?? field.dataTypeID
  return result
}
class Client extends pg.Client {
  query(...args) {
    const done = args.at(-1)
    if (typeof done !== 'function') return super.query(...args).then(asTexts)
    return super.query(...args.slice(0, -1), (error, result) => done(error, asTexts(result)))
  }
}
class Pool extends pg.Pool {
  constructor(options) {
    super({ ...options, Client })
  }
}
export default defineConfig({
  experimental: { adapter: true },
  engine: 'js',
  schema: 'schema.prisma',
  adapter: async () => new PrismaPg(new Pool({ connectionString: process.env.DATABASE_URL })),
})
`,
)
// Programs that exist keep Prisma from downloading others. They are not called.
writeFileSync('unused', '#!/bin/sh\nexit 1\n')
chmodSync('unused', 0o755)
const env = {
  ...process.env,
  CHECKPOINT_DISABLE: '1',
  PRISMA_HIDE_UPDATE_MESSAGE: '1',
  PRISMA_QUERY_ENGINE_LIBRARY: `${process.cwd()}/unused`,
  PRISMA_SCHEMA_ENGINE_BINARY: `${process.cwd()}/unused`,
}
for (const args of [['db', 'push', '--skip-generate'], ['generate']]) {
  execFileSync(process.execPath, ['node_modules/prisma/build/index.js', ...args], {
    env,
    stdio: 'inherit',
  })
}

const { PrismaClient, Prisma } = createRequire(import.meta.url)('./generated/index.js')
const prisma = new PrismaClient({
  adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }),
})
const codeOf = (work) =>
  work.then(
    () => undefined,
    ({ code }) => code,
  )

const ann = await prisma.user.create({
  data: {
    email: 'ann@b.co',
    role: 'ADMIN',
    profile: { create: { bio: 'hello' } },
    posts: {
      create: [
        { title: 'One', price: '12.50', meta: { a: [1] }, tags: ['x', 'y'] },
        { title: 'Two' },
      ],
    },
  },
  include: { posts: { orderBy: { id: 'asc' } }, profile: true },
})
assert.equal(ann.posts.length, 2)
assert.equal(ann.posts[0].price.toFixed(2), '12.50')
assert.deepEqual(
  [ann.posts[0].meta, ann.posts[0].tags, ann.posts[1].views],
  [{ a: [1] }, ['x', 'y'], 0n],
)
assert.equal(ann.profile.userId, ann.id)
assert.ok(ann.createdAt instanceof Date)

assert.equal(await codeOf(prisma.user.create({ data: { email: 'ann@b.co' } })), 'P2002')
assert.equal(await codeOf(prisma.post.create({ data: { title: 'x', authorId: 999 } })), 'P2003')
assert.equal(await codeOf(prisma.user.update({ where: { id: 999 }, data: { name: 'x' } })), 'P2025')

await prisma.user.createMany({ data: [{ email: 'b@b.co' }, { email: 'c@b.co' }] })
const merged = { where: { email: 'b@b.co' }, create: { email: 'b@b.co' }, update: { name: 'Bob' } }
assert.equal((await prisma.user.upsert(merged)).name, 'Bob')
assert.equal(
  (await prisma.user.upsert({ ...merged, where: { email: 'd@b.co' }, create: { email: 'd@b.co' } }))
    .name,
  null,
)
await prisma.post.updateMany({
  where: { author: { email: { contains: 'ANN', mode: 'insensitive' } } },
  data: { views: { increment: 2 } },
})
const found = await prisma.post.findMany({
  where: { OR: [{ title: { startsWith: 'O' } }, { tags: { has: 'y' } }], views: { gte: 2 } },
  include: { author: { select: { email: true, role: true } } },
})
assert.deepEqual(
  found.map(({ title, author }) => [title, author]),
  [['One', { email: 'ann@b.co', role: 'ADMIN' }]],
)
const sums = await prisma.post.groupBy({ by: ['authorId'], _count: true, _sum: { price: true } })
assert.deepEqual([sums[0]._count, sums[0]._sum.price.toFixed(2)], [2, '12.50'])
const page = await prisma.user.findMany({ orderBy: { email: 'asc' }, skip: 1, take: 2 })
assert.deepEqual(
  page.map(({ email }) => email),
  ['b@b.co', 'c@b.co'],
)

const left = prisma.$transaction(async (inside) => {
  await inside.user.deleteMany({ where: { role: 'USER' } })
  assert.equal(await inside.user.count(), 1)
  throw new Error('taken back')
})
await assert.rejects(left, /taken back/)
assert.equal(await prisma.user.count(), 4)
await prisma.$transaction([
  prisma.post.delete({ where: { id: ann.posts[1].id } }),
  prisma.user.update({ where: { id: ann.id }, data: { name: 'Ann' } }),
])
const [row] =
  await prisma.$queryRaw`select count(*)::int as posts from "Post" where price > ${new Prisma.Decimal('1.5')}`
assert.equal(row.posts, 1)
await prisma.$disconnect()
console.log('done')
