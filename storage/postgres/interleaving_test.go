package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/pgproxy"
)

// holder is one of several that work on a resource, step by step.
type holder struct {
	grant fence.Grant
	claim guard.Claim
	txn   guard.Txn[pgx.Tx]
	sold  bool // in the open transaction
	doubt *guard.InDoubt
}

// interleaving drives holders through random steps over the data of one resource:
// a stock that each reads, decides on and lowers.
type interleaving struct {
	*rapid.T
	ctx     context.Context
	faulty  faulty
	key     string
	stock   int64 // at the start
	sold    int64 // what is known to have taken effect
	holders []*holder
	last    fence.Token    // that was granted
	seen    map[string]int // what came about, over all sequences
}

// TestStore_LosesNoUpdateInAnyInterleaving_G2_G4 runs 1,000 and more random
// sequences of a few holders' steps, equal grants, lost COMMITs and lost replies
// included, against an oracle on the data: stock left is what was there less what
// was sold, and never below zero. The isolation levels share the sequences.
func TestStore_LosesNoUpdateInAnyInterleaving_G2_G4(t *testing.T) {
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) { interleave(t, newFaultyAt(t, level), 1000/len(levels)) })
}

func interleave(t *testing.T, f faulty, least int) {
	sequences, seen := 0, map[string]int{}
	run := func(r *rapid.T) {
		sequences++
		s := &interleaving{T: r, ctx: t.Context(), faulty: f, key: fmt.Sprintf("sku/%d", sequences), stock: 3, last: 3, seen: seen}
		s.start()
		for range rapid.IntRange(8, 16).Draw(r, "steps") {
			s.step(s.holders[rapid.IntRange(0, 100).Draw(r, "holder")%len(s.holders)])
		}
		s.finish()
	}
	for sequences < least {
		rapid.Check(t, run)
	}
	t.Logf("%d sequences: %v", sequences, seen)
	for _, what := range []string{"sold", "stale claim", "stale", "overtaken", "applied", "not applied"} {
		require.Positive(t, seen[what], what)
	}
}

func (s *interleaving) start() {
	write, err := s.faulty.pool.Exec(s.ctx, "insert into item values ($1, $2)", s.key, s.stock)
	require.NoError(s, err)
	require.EqualValues(s, 1, write.RowsAffected())
	tokens := rapid.SliceOfN(rapid.SampledFrom([]int64{2, 2, 1, 3}), 2, 3).Draw(s.T, "tokens")
	for _, token := range tokens { // equal ones are one grant that has travelled
		s.holders = append(s.holders, &holder{
			grant: fence.Grant{Resource: s.key, Epoch: 1, Token: fence.Token(token), Holder: fmt.Sprintf("h%d", token)},
		})
	}
}

// step takes one of the steps that a holder can take; its next one is likeliest.
func (s *interleaving) step(h *holder) {
	aside := rapid.IntRange(0, 9).Draw(s.T, "aside") == 9
	switch {
	case h.claim.Resource == 0 || h.doubt != nil || h.txn == nil && aside:
		s.claim(h)
	case h.txn == nil:
		s.begin(h)
	case aside:
		s.rollback(h)
	case !h.sold:
		s.sell(h)
	default:
		s.commit(h)
	}
}

// claim resolves what is in doubt first, as a holder has to (G6).
func (s *interleaving) claim(h *holder) {
	if h.doubt != nil {
		s.resolve(h)
	}
	c, err := s.faulty.direct.Claim(s.ctx, h.grant)
	if err != nil {
		require.ErrorIs(s, err, guard.ErrStaleToken)
		s.seen["stale claim"]++
		s.last++ // it acquires anew
		h.grant.Token, h.grant.Holder, c = s.last, fmt.Sprintf("h%d", s.last), guard.Claim{}
	}
	h.claim = c
}

func (s *interleaving) begin(h *holder) {
	txn, err := s.faulty.store.Begin(s.ctx, h.claim)
	if err != nil {
		require.ErrorIs(s, err, guard.ErrStaleToken)
		h.claim = guard.Claim{}
		return
	}
	h.txn, h.sold = txn, false
}

// sell reads without a lock, decides, and writes the number it came to.
func (s *interleaving) sell(h *holder) {
	err := h.txn.Run(s.ctx, do(func(ctx context.Context, tx pgx.Tx) error {
		var left int64
		if err := get(s.key, &left)(ctx, tx); err != nil {
			return err
		}
		if left == 0 {
			return errors.New("out of stock")
		}
		h.sold = true
		_, err := tx.Exec(ctx, "set local lock_timeout = 1; update item set value = "+fmt.Sprint(left-1)+" where key = '"+s.key+"'")
		return err
	}))
	if err != nil {
		h.txn.Rollback(s.ctx)
		h.txn = nil
		s.refused(h, err)
	}
}

// refused draws the consequences of an error.
func (s *interleaving) refused(h *holder, err error) {
	switch {
	case errors.Is(err, guard.ErrStaleToken):
		s.seen["stale"]++
		h.claim = guard.Claim{}
	case errors.Is(err, guard.ErrOvertaken):
		s.seen["overtaken"]++
		h.claim = guard.Claim{}
	}
}

func (s *interleaving) commit(h *holder) {
	fault := rapid.SampledFrom([]func() *pgproxy.Action{
		func() *pgproxy.Action { return nil }, func() *pgproxy.Action { return nil }, pgproxy.SwallowCommit, pgproxy.SwallowReply,
	}).Draw(s.T, "fault")()
	s.faulty.proxy.OnCommit(func(string) *pgproxy.Action { return fault })
	claims, err := h.txn.Commit(s.ctx, nil)
	s.faulty.proxy.OnCommit(nil)
	h.txn = nil
	var doubt *guard.InDoubtError
	switch {
	case err == nil:
		h.claim = claims[0]
		s.count(h)
	case errors.As(err, &doubt):
		h.doubt = &doubt.InDoubt
	default:
		s.refused(h, err)
	}
}

func (s *interleaving) count(h *holder) {
	if h.sold {
		s.sold++
		s.seen["sold"]++
	}
}

func (s *interleaving) rollback(h *holder) {
	if h.txn != nil {
		h.txn.Rollback(s.ctx)
		h.txn = nil
	}
}

func (s *interleaving) resolve(h *holder) {
	applied, err := s.faulty.direct.Resolve(s.ctx, *h.doubt)
	require.NoError(s, err)
	h.doubt = nil
	if applied {
		s.seen["applied"]++
		s.count(h)
	} else {
		s.seen["not applied"]++
	}
}

func (s *interleaving) finish() {
	for _, h := range s.holders {
		s.rollback(h)
		if h.doubt != nil {
			s.resolve(h)
		}
	}
	var left int64
	require.NoError(s, s.faulty.pool.QueryRow(s.ctx, "select value from item where key = $1", s.key).Scan(&left))
	require.Equal(s, s.stock-s.sold, left, "stock left")
	require.GreaterOrEqual(s, left, int64(0))
}
