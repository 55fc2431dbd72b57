// A shop in Go with pgx: a migration in a transaction, typed binary values, batches and COPY.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func expect(isTrue bool, what string) {
	if !isTrue {
		log.Fatal("expected: ", what)
	}
}

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL")+"?sslmode=disable")
	must(err)
	defer connection.Close(ctx)

	migration, err := connection.Begin(ctx)
	must(err)
	_, err = migration.Exec(ctx, `create table customers (
		id bigint generated always as identity primary key, email varchar(100) not null unique,
		balance numeric(10, 2), born date, ref uuid, tags text[], data jsonb,
		active boolean default true, joined timestamptz default now())`)
	must(err)
	_, err = migration.Exec(ctx, `create table orders (
		id bigint generated always as identity primary key,
		customer_id bigint not null references customers (id) on delete cascade, note text)`)
	must(err)
	_, err = migration.Exec(ctx, "create index on orders (customer_id, note)")
	must(err)
	var id int64
	must(migration.QueryRow(ctx, `insert into customers (email, balance, born, ref, tags, data)
		values ($1, $2, $3, $4, $5, $6) returning id`, "a@b.co", "12.50", time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
		"0190f3b4-7a5e-7c11-8000-00000000000a", []string{"x", "y"}, map[string]int{"n": 1}).Scan(&id))
	must(migration.Commit(ctx))

	var balance float64
	var born time.Time
	var tags []string
	var data map[string]int
	var active bool
	must(connection.QueryRow(ctx,
		"select balance, born, tags, data, active from customers where id = $1 and email like $2", id, "a%").
		Scan(&balance, &born, &tags, &data, &active))
	expect(balance == 12.5 && born.Day() == 2 && len(tags) == 2 && data["n"] == 1 && active, "the values as they were")

	_, err = connection.Exec(ctx, "insert into customers (email) values ($1)", "a@b.co")
	var refusal *pgconn.PgError
	expect(errors.As(err, &refusal) && refusal.Code == "23505", "a taken value is refused")

	batch := &pgx.Batch{}
	for number := range 3 {
		batch.Queue("insert into orders (customer_id, note) values ($1, $2)", id, fmt.Sprint("batch ", number))
	}
	must(connection.SendBatch(ctx, batch).Close())
	copied, err := connection.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"customer_id", "note"},
		pgx.CopyFromRows([][]any{{id, "copied"}, {id, nil}}))
	must(err)
	expect(copied == 2, "two copied rows")

	failed := pgx.BeginFunc(ctx, connection, func(transaction pgx.Tx) error {
		_, err := transaction.Exec(ctx, "delete from orders where note like $1", "batch%")
		must(err)
		inner, err := transaction.Begin(ctx)
		must(err)
		_, err = inner.Exec(ctx, "insert into customers (email) values ('a@b.co')")
		expect(err != nil, "a taken value is refused")
		must(inner.Rollback(ctx))
		return errors.New("rolled back")
	})
	expect(failed != nil, "the transaction is rolled back")
	tag, err := connection.Exec(ctx, "update orders set note = $1 where customer_id = $2", "seen", id)
	must(err)
	expect(tag.RowsAffected() == 5, "five orders")

	columns, err := connection.Query(ctx, `select column_name::text from information_schema.columns
		where table_schema = 'public' and table_name = 'orders' order by ordinal_position`)
	must(err)
	names, err := pgx.CollectRows(columns, pgx.RowTo[string])
	must(err)
	expect(len(names) == 3, "three columns")
	_, err = connection.Exec(ctx, "delete from customers where id = $1", id)
	must(err)
	var left int
	must(connection.QueryRow(ctx, "select count(*) from orders").Scan(&left))
	expect(left == 0, "no orders")
	fmt.Println("done")
}
