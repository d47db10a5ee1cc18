package soak_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
)

// The accounts, each a resource of its own name.
const (
	accounts       = 60
	openingBalance = 1000
	maxPerTransfer = 20
)

func account(n int) string { return fmt.Sprintf("account/%02d", n) }

// transferSchema holds the accounts, and a row for each operation and account that
// it moved: with nothing unique about it, so that whatever takes effect twice
// shows. A version counts the operations of its account.
const transferSchema = `
create table account (name text primary key, balance bigint not null, version bigint not null);
create table movement (op text not null, account text not null, version bigint not null, token bigint not null, before bigint not null, delta bigint not null);`

// transfer is one operation: what it adds to which accounts, in any order, nothing
// in sum.
type transfer struct {
	id       string
	accounts []string
	deltas   []int64
}

// planned returns the transfer that has this id in a run with this seed: so the
// checks know it from the id alone.
func planned(seed uint64, id string) transfer {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	random := rand.New(rand.NewPCG(seed, h.Sum64()))
	t := transfer{id: id}
	sum := int64(0)
	for _, n := range random.Perm(accounts)[:1+random.IntN(maxPerTransfer)] {
		delta := random.Int64N(201) - 100
		sum += delta
		t.accounts = append(t.accounts, account(n))
		t.deltas = append(t.deltas, delta)
	}
	t.deltas[0] -= sum
	return t
}

// run reads all accounts, decides and writes all, in statements of their own:
// without a fence two of them lose an update. It writes in the transfer's own
// order, so that what it locks in the database is in no common one. decided is
// called in between.
func (t transfer) run(ctx context.Context, tx pgx.Tx, decided func() error) error {
	type state struct{ balance, version, token int64 }
	read := make(map[string]state, len(t.accounts))
	rows, err := tx.Query(ctx, "select a.name, a.balance, a.version, r.token from account a join fence.resource r using (name) where a.name = any($1)", t.accounts)
	if err != nil {
		return err
	}
	var name string
	var s state
	if _, err := pgx.ForEachRow(rows, []any{&name, &s.balance, &s.version, &s.token}, func() error {
		read[name] = s
		return nil
	}); err != nil {
		return err
	}
	if err := decided(); err != nil {
		return err
	}
	b := &pgx.Batch{}
	for i, name := range t.accounts {
		s, ok := read[name]
		if !ok {
			return fmt.Errorf("%s has no row, or no fence", name)
		}
		b.Queue("update account set balance = $2, version = $3 where name = $1", name, s.balance+t.deltas[i], s.version+1)
		b.Queue("insert into movement values ($1, $2, $3, $4, $5, $6)", t.id, name, s.version+1, s.token, s.balance, t.deltas[i])
	}
	return tx.SendBatch(ctx, b).Close()
}
