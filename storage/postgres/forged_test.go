package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
)

// sealCall is the seal, under the name tx, of a transaction whose begin check is in the same
// message.
func sealCall(c storage.Claim, tx storage.TxID) string {
	return fmt.Sprintf("call fence.seal(%d, %d, %d, '%x', %d, %d, %d, '5b5d', null)",
		c.Resource, c.Grant.Epoch, c.Grant.Token, c.Grant.Holder, c.Seq, c.Tx, tx)
}

// sealKeeping is sealCall, with the arguments of what is kept.
func sealKeeping(c storage.Claim, tx storage.TxID, kept string) string {
	return fmt.Sprintf("call fence.seal_all('{%d}', '{%d}', '{%d}', '{%x}', '{%d}', '{%d}', %d, '{5b5d}', null, %s)",
		c.Resource, c.Grant.Epoch, c.Grant.Token, c.Grant.Holder, c.Seq, c.Tx, tx, kept)
}

// beginCheckCall is the begin check of a transaction under c.
func beginCheckCall(c storage.Claim) string {
	return fmt.Sprintf("select fence.begin_check(%d, %d, %d, '3600000', '3600000', '3600000', '3600000', '0', true)", c.Resource, c.Grant.Epoch, c.Grant.Token)
}

// voidCall takes the next position of c as a void that has the name tx.
func voidCall(c storage.Claim, tx storage.TxID) string {
	return fmt.Sprintf("select fence.resolve(%d, %d, %d, '%s', %d, %d, 1, %d)",
		c.Resource, c.Grant.Epoch, c.Grant.Token, c.Grant.Holder, c.Seq, c.Tx, tx)
}

// inOne executes statements as one transaction.
func inOne(t testing.TB, pool *pgxpool.Pool, sql string) error {
	t.Helper()
	_, err := pool.Exec(t.Context(), "begin; "+sql+"; commit")
	return err
}

// A seal belongs to one transaction of the server. In another one it fails, however that
// came to be.
func TestSeal_OnlyInTheTransactionThatWasChecked(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := claim(t, store, grant(5, "a"))
	for name, before := range map[string]string{
		"no begin check":                    "select",
		"the begin check of an earlier one": beginCheckCall(c) + "; commit; begin",
		"of one that was rolled back":       beginCheckCall(c) + "; rollback; begin",
		"its id kept for the session":       beginCheckCall(c) + "; select set_config('fencekit.xid', current_setting('fencekit.xid'), false); commit; begin",
		"an empty id":                       "select set_config('fencekit.xid', '', true)",
		"another id":                        "select set_config('fencekit.xid', '1', true)",
		"the id of a savepoint's":           "savepoint a; " + beginCheckCall(c) + "; rollback to savepoint a",
		"a claim, and what that writes":     "select fence.claim_one('sku/1', 1, 5, 'a')",
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, inOne(t, r.app, before+"; insert into item values ('forged', 1); "+sealCall(c, 77)), "SQLSTATE ZF003")
			holds(t, r.admin, "forged", 0)
			require.Equal(t, c, claim(t, store, c.Grant))
		})
	}
	require.NoError(t, inOne(t, r.app, beginCheckCall(c)+"; savepoint a; release savepoint a; "+sealCall(c, 77)))
}

// arrays are the arguments of begin_check_all and seal_all, as SQL.
type arrays struct{ resources, epochs, tokens, holders, seqs, prevs, ops string }

func (x arrays) begin() string {
	return fmt.Sprintf("select fence.begin_check_all(%s, %s, %s, '3600000', '3600000', '3600000', '3600000', '0', true)", x.resources, x.epochs, x.tokens)
}

func (x arrays) seal() string {
	return fmt.Sprintf("call fence.seal_all(%s, %s, %s, %s, %s, %s, 77, %s, null)", x.resources, x.epochs, x.tokens, x.holders, x.seqs, x.prevs, x.ops)
}

// malformed returns what is wrong with the arguments of a seal of a and b, by its name.
func malformed(a, b storage.Claim) map[string]func(*arrays) {
	return map[string]func(*arrays){
		"no resources":    func(x *arrays) { x.resources = "'{}'" },
		"nothing at all":  func(x *arrays) { *x = arrays{"'{}'", "'{}'", "'{}'", "'{}'", "'{}'", "'{}'", "'{}'"} },
		"ops null":        func(x *arrays) { x.ops = "null" },
		"one epoch":       func(x *arrays) { x.epochs = "'{1}'" },
		"ops of one":      func(x *arrays) { x.ops = "'{5b5d}'" },
		"a null resource": func(x *arrays) { x.resources = fmt.Sprintf("'{%d,null}'", a.Resource) },
		"a null token":    func(x *arrays) { x.tokens = "'{null,5}'" },
		"a null seq":      func(x *arrays) { x.seqs = "'{null,1}'" },
		"out of order": func(x *arrays) {
			x.resources, x.prevs = fmt.Sprintf("'{%d,%d}'", b.Resource, a.Resource), fmt.Sprintf("'{%d,%d}'", b.Tx, a.Tx)
		},
		"one twice": func(x *arrays) {
			x.resources, x.seqs, x.prevs = fmt.Sprintf("'{%d,%d}'", a.Resource, a.Resource), "'{1,2}'", fmt.Sprintf("'{%d,77}'", a.Tx)
		},
		"two dimensions":      func(x *arrays) { x.resources = fmt.Sprintf("'{{%d,%d}}'", a.Resource, b.Resource) },
		"other bounds":        func(x *arrays) { x.resources = fmt.Sprintf("'[0:1]={%d,%d}'", a.Resource, b.Resource) },
		"a holder not in hex": func(x *arrays) { x.holders = "'{61,xy}'" },
		"a holder not UTF-8":  func(x *arrays) { x.holders = "'{61,ff}'" },
		"ops not in JSON":     func(x *arrays) { x.ops = "'{5b5d,5b}'" },
		"another position":    func(x *arrays) { x.seqs = "'{1,2}'" },
		"another holder":      func(x *arrays) { x.holders = "'{61,62}'" },
	}
}

// Arguments that no Store sends move no fence: arrays of other lengths, without elements, with nulls, of two
// dimensions, with other bounds; resources that aren't in order, or are named twice; and
// text that can't be decoded.
func TestFunctions_RejectMalformedArrays(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	other := grantOf("sku/2", 5)
	a, b := claim(t, store, grant(5, "a")), claim(t, store, other)
	if a.Resource > b.Resource {
		a, b = b, a
	}
	good := arrays{
		fmt.Sprintf("'{%d,%d}'", a.Resource, b.Resource), "'{1,1}'", "'{5,5}'", "'{61,61}'", "'{1,1}'", fmt.Sprintf("'{%d,%d}'", a.Tx, b.Tx), `'{5b5d,""}'`,
	}
	before := query[string](t, r.admin, "select string_agg(r::text, ' ' order by id) from fence.resource r")
	for name, bad := range malformed(a, b) {
		t.Run(name, func(t *testing.T) {
			x := good
			bad(&x)
			require.Error(t, inOne(t, r.app, good.begin()+"; "+x.seal()))
			require.Equal(t, before, query[string](t, r.admin, "select string_agg(r::text, ' ' order by id) from fence.resource r"))
		})
	}
	require.NoError(t, inOne(t, r.app, good.begin()+"; "+good.seal()))
	verifyChain(t, r.admin)
	for _, args := range []string{"null, '{1}', '{5}'", "'{}', '{}', '{}'", "'{1}', '{}', '{5}'", "'{1}', '{1}', '{5,5}'", "'{1}', null, '{5}'"} {
		require.ErrorContains(t, inOne(t, r.app, "select fence.begin_check_all("+args+", '1', '1', '1', '1', '1', false)"), "SQLSTATE ZF007", args)
	}
	for _, args := range []string{
		"null, '{1}', '{5}', '{61}'", "'{}', '{}', '{}', '{}'", "'{61}', '{}', '{5}', '{61}'", "'{61}', '{1}', '{5,6}', '{61}'", "'{61}', '{1}', '{5}', null",
		"'{62,61}', '{1,1}', '{5,5}', '{61,61}'", "'{61,61}', '{1,1}', '{5,5}', '{61,61}'", "'{61,null}', '{1,1}', '{5,5}', '{61,61}'", "'{{61,62}}', '{1,1}', '{5,5}', '{61,61}'",
	} {
		require.ErrorContains(t, inOne(t, r.app, "select fence.claim("+args+", 77)"), "SQLSTATE ZF007", args)
	}
	for _, seen := range []string{"null, '{1}'", "'{1}', null", "'{}', '{}'", "'{1,2}', '{1}'", "'{1}', '{1,2}'", "'{null}', '{1}'", "'{1}', '{null}'"} {
		require.ErrorContains(t, inOne(t, r.app, "select fence.claim('{61}', '{1}', '{5}', '{61}', 77, '', "+seen+")"), "SQLSTATE ZF007", seen)
	}
	require.Equal(t, 2, query[int](t, r.admin, "select count(*) from fence.resource"))
}

// An app role is trusted with what guarantees.md says: it can write under a holder's grant,
// and keep a holder from committing. It can't make a holder's transaction commit on changed
// data, nor move a fence without an entry in the history.
func TestForge_WhatAnAppRoleIsTrustedFor(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := claim(t, store, grant(5, "a"))
	for name, forge := range map[string]func(c storage.Claim) string{
		"another transaction under the grant": func(c storage.Claim) string { return beginCheckCall(c) + "; " + sealCall(c, 77) },
		"without a begin check": func(c storage.Claim) string {
			return "select set_config('fencekit.xid', pg_current_xact_id()::text, true); " + sealCall(c, 77)
		},
		"a position voided": func(c storage.Claim) string { return voidCall(c, 78) },
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(t, store, c.Grant)
			txn := begin(t, store, c)
			require.NoError(t, txn.Run(t.Context(), set("x", 1)))
			require.NoError(t, inOne(t, r.app, forge(c)))
			_, err := txn.Commit(t.Context(), nil)
			require.ErrorIs(t, err, storage.ErrOvertaken)
		})
	}
	txn := begin(t, store, claim(t, store, c.Grant))
	require.NoError(t, inOne(t, r.app, "select fence.claim_one('sku/1', 1, 6, 'forged')"))
	_, err := txn.Commit(t.Context(), nil)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	holds(t, r.admin, "x", 0)
	verifyChain(t, r.admin)
}

// A void or a claim under the name of a transaction in doubt doesn't make that
// transaction's COMMIT count as applied.
func TestForge_OnlyAWriteIsACommit(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := claim(t, store, grant(5, "a"))
	for _, forge := range []string{voidCall(c, 77), "select fence.claim('{736b752f31}', '{1}', '{6}', '{62}', 77)"} {
		c = claim(t, store, grant(c.Grant.Token, c.Grant.Holder))
		require.NoError(t, inOne(t, r.app, forge))
		require.False(t, applied(t, store, storage.InDoubt{Claims: []storage.Claim{c}, Tx: 77}))
	}
}

// A key is kept only by a seal, for a resource whose fence it moves: otherwise other
// transactions would not notice it. So a transaction of one resource can't make an operation
// on another one count as done.
func TestKeep_WithoutItsMoveIsRejected(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c, o := claim(t, store, grant(5, "a")), claim(t, store, grantOf("sku/2", 5))
	keeping := func(c storage.Claim, kept string) string {
		return beginCheckCall(c) + "; " + sealKeeping(c, 77, kept)
	}
	zeros := strings.Repeat("00", 32)
	for name, kept := range map[string]string{
		"another resource":      fmt.Sprintf("'{%d}', '{6b}', '{%s}', '{31}'", o.Resource, zeros),
		"another one beside it": fmt.Sprintf("'{%d,%d}', '{6b,6b}', '{%s,%s}', '{31,31}'", c.Resource, o.Resource, zeros, zeros),
		"a null resource":       fmt.Sprintf("'{null}', '{6b}', '{%s}', '{31}'", zeros),
		"null":                  fmt.Sprintf("null, '{6b}', '{%s}', '{31}'", zeros),
		"no keys":               fmt.Sprintf("'{%d}', '{}', '{%s}', '{31}'", c.Resource, zeros),
		"no requests":           fmt.Sprintf("'{%d}', '{6b}', '{}', '{31}'", c.Resource),
		"no results":            fmt.Sprintf("'{%d}', '{6b}', '{%s}', '{}'", c.Resource, zeros),
		"null results":          fmt.Sprintf("'{%d}', '{6b}', '{%s}', null", c.Resource, zeros),
	} {
		require.ErrorContains(t, inOne(t, r.app, keeping(c, kept)), "(SQLSTATE ZF007)", name)
	}
	require.ErrorContains(t, inOne(t, r.app, keeping(c, fmt.Sprintf("'{%d}', '{6b}', '{00}', '{31}'", c.Resource))), "operation_request")
	moved := c
	moved.Seq++
	require.ErrorContains(t, inOne(t, r.app, keeping(moved, fmt.Sprintf("'{%d}', '{6b}', '{%s}', '{31}'", c.Resource, zeros))), "(SQLSTATE ZF004)")
	require.Zero(t, query[int](t, r.admin, "select count(*) from fence.operation"))
	require.NoError(t, inOne(t, r.app, keeping(c, fmt.Sprintf("'{%d}', '{6b}', '{%s}', '{31}'", c.Resource, zeros))))
	require.Equal(t, 1, query[int](t, r.admin, "select count(*) from fence.operation"))
}
