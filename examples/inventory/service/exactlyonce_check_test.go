package service

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// check compares the answers that clients got with the data, and then with the history.
// All clients have an answer in the end, so each order in the data has to be in one.
func check(t *testing.T, pool *pgxpool.Pool, s *shop) {
	t.Helper()
	require.Len(t, s.answers, *deductions)
	want := map[string][]lotLine{} // by order
	sold, soldOut := map[string]int{}, map[string]bool{}
	for key, answer := range s.answers {
		o := s.orders[key]
		if answer.status == http.StatusConflict {
			require.Equal(t, "sold-out", answer.problemName(t))
			soldOut[o.sku] = true
			continue
		}
		d := answer.deduction(t)
		require.Equal(t, o, order{d.SKU, d.Qty})
		require.Empty(t, want[d.Order], "an order was given to two keys")
		want[d.Order] = d.Lots
		sold[o.sku] += o.qty
	}
	require.Equal(t, map[string]bool{product(0): true}, soldOut, "only the first product may be sold out, and has to be")
	require.Equal(t, want, ordersInData(t, pool))
	for sku, left := range leftInData(t, pool, sold) {
		require.GreaterOrEqual(t, left, 0, "%s was oversold", sku)
	}
	checkSoldOut(t, pool, s, sold)
	checkHistory(t, pool, s)
}

// ordersInData returns which lots each order has.
func ordersInData(t *testing.T, pool *pgxpool.Pool) map[string][]lotLine {
	t.Helper()
	orders, err := readOrders(t.Context(), pool)
	require.NoError(t, err)
	return orders
}

// leftInData returns the least that is left of any lot of each product, after
// comparing the sums with the clients' answers.
func leftInData(t *testing.T, pool *pgxpool.Pool, sold map[string]int) map[string]int {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		select l.sku, sum(r.quantity), min(l.quantity - r.quantity)
		  from lot l join lateral (select coalesce(sum(quantity), 0) as quantity from reservation where lot = l.id) r on true
		 where l.SKU <> $1 group by l.sku`, SKU)
	require.NoError(t, err)
	left, reserved := map[string]int{}, map[string]int{}
	var name string
	var sum, least int
	_, err = pgx.ForEachRow(rows, []any{&name, &sum, &least}, func() error {
		left[name], reserved[name] = least, sum
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, sold, reserved)
	return left
}

// checkSoldOut: a client that was turned away asked for more than there was, and as
// nothing came in there is no more in the end.
func checkSoldOut(t *testing.T, pool *pgxpool.Pool, s *shop, sold map[string]int) {
	t.Helper()
	var onHand int
	require.NoError(t, pool.QueryRow(t.Context(), "select sum(quantity) from lot where sku = $1", product(0)).Scan(&onHand))
	for key, answer := range s.answers {
		if answer.status != http.StatusConflict {
			continue
		}
		var facts shortage
		require.NoError(t, json.Unmarshal([]byte(answer.body), &facts))
		require.Less(t, facts.Available, s.orders[key].qty)
		require.GreaterOrEqual(t, facts.Available, onHand-sold[product(0)], "there is more now than there was then")
	}
}

// checkHistory: each key is in its product's history once, under the token of its
// client's answer, and several servers have written it.
func checkHistory(t *testing.T, pool *pgxpool.Pool, s *shop) {
	t.Helper()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	tokens, holders := map[string]string{}, map[string]bool{}
	for n := range products {
		var last storage.Entry
		for {
			entries, err := store.Entries(t.Context(), Resource(product(n)), last.Seq, 1000)
			require.NoError(t, err)
			if len(entries) == 0 {
				break
			}
			for _, e := range entries {
				require.Equal(t, last.Seq+1, e.Seq)
				require.GreaterOrEqual(t, e.Grant.Token, last.Grant.Token)
				last = e
				holders[e.Grant.Holder[:strings.LastIndexByte(e.Grant.Holder, '-')]] = true
				for _, op := range e.Ops {
					require.Empty(t, tokens[op.ID], "a key took effect twice")
					tokens[op.ID] = e.Grant.Token.String()
				}
			}
		}
	}
	require.Len(t, tokens, *deductions)
	for key, answer := range s.answers {
		if answer.status == http.StatusOK {
			require.Equal(t, tokens[key], answer.deduction(t).Token, key)
		}
	}
	require.Len(t, holders, 4, "two servers, each replaced once, were to write")
}
