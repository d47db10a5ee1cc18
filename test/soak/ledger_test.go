package soak_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// ledger is the data of the database: it is compared with what workers reported and with what
// the operations were to do. What Fencekit recorded is not used.
type ledger struct {
	accounts  []balance
	movements []movement // in order of account and version
}

type balance struct {
	Account          string
	Balance, Version int64
}

// movement is one row of an operation.
type movement struct {
	Op, Account                   string
	Version, Token, Before, Delta int64
}

func readLedger(t *testing.T, ctx context.Context, pool *pgxpool.Pool) (l ledger) {
	rows, err := pool.Query(ctx, "select name, balance, version from account")
	require.NoError(t, err)
	l.accounts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[balance])
	require.NoError(t, err)
	rows, err = pool.Query(ctx, "select op, account, version, token, before, delta from movement order by account, version, ctid")
	require.NoError(t, err)
	l.movements, err = pgx.CollectRows(rows, pgx.RowToStructByPos[movement])
	require.NoError(t, err)
	return l
}

// check returns what is wrong.
func (l ledger) check(seed uint64, ops map[string]*opTrace) []string {
	return append(l.checkSums(), l.checkOutcomes(seed, ops)...)
}

// checkSums checks that each account is what its movements make of it, and that
// each movement began where the one before had ended, under a token that is no
// lower (G3).
func (l ledger) checkSums() (wrong []string) {
	type end struct{ balance, version, token int64 }
	ends := map[string]end{}
	for n := range accounts {
		ends[account(n)] = end{balance: openingBalance}
	}
	for _, m := range l.movements {
		e := ends[m.Account]
		if m.Version != e.version+1 || m.Before != e.balance || m.Token < e.token {
			wrong = append(wrong, fmt.Sprintf("%s: an update was lost: %+v follows %+v", m.Account, m, e))
		}
		ends[m.Account] = end{e.balance + m.Delta, m.Version, m.Token}
	}
	total := int64(0)
	for _, b := range l.accounts {
		total += b.Balance
		if e := ends[b.Account]; e.balance != b.Balance || e.version != b.Version {
			wrong = append(wrong, fmt.Sprintf("%+v: its movements make %+v", b, e))
		}
		delete(ends, b.Account)
	}
	if total != accounts*openingBalance || len(ends) > 0 {
		wrong = append(wrong, fmt.Sprintf("the sum is %d, not %d; accounts that are missing: %v", total, accounts*openingBalance, ends))
	}
	return wrong
}

// checkOutcomes checks that each operation moved all of its accounts once or none
// at all, as it reported (G4).
func (l ledger) checkOutcomes(seed uint64, ops map[string]*opTrace) (wrong []string) {
	moved := map[string][]string{}
	for _, m := range l.movements {
		moved[m.Op] = append(moved[m.Op], m.Account)
	}
	for id, op := range ops {
		applied := len(moved[id]) > 0
		if applied {
			want := slices.Sorted(slices.Values(planned(seed, id).accounts))
			if got := slices.Sorted(slices.Values(moved[id])); !slices.Equal(want, got) {
				wrong = append(wrong, fmt.Sprintf("operation %s moved %v, not each of %v once", id, got, want))
			}
		}
		delete(moved, id)
		wrong = append(wrong, op.check(applied)...)
	}
	for id := range moved {
		wrong = append(wrong, fmt.Sprintf("operation %s was never begun", id))
	}
	return wrong
}

// check compares the reported outcome of an operation with whether it took effect. An
// operation that ended with its worker may have taken effect.
func (op *opTrace) check(applied bool) (wrong []string) {
	end := op.end
	if end == nil {
		return nil
	}
	switch {
	case end.Outcome == committed && !applied:
		wrong = append(wrong, "it was acknowledged and had no effect")
	case end.Outcome == failed && applied:
		wrong = append(wrong, "it took effect and failed")
	case op.answer != nil && op.answer.Applied != applied:
		wrong = append(wrong, fmt.Sprintf("Resolve said applied=%v, and it was %v", op.answer.Applied, applied))
	}
	if end.Class == "40P01" {
		wrong = append(wrong, "a deadlock reached its caller")
	}
	if end.Late {
		wrong = append(wrong, "it did not end by itself")
	}
	for i := range wrong {
		wrong[i] = fmt.Sprintf("operation %s: %s: %s", end.Op, wrong[i], end.Err)
	}
	return wrong
}
