package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
)

// sealCall is the seal of a transaction under c that has the name tx.
func sealCall(c storage.Claim, tx storage.TxID) string {
	return fmt.Sprintf("call fence.seal(%d, %d, %d, '%x', %d, %d, %d, '5b5d')",
		c.Resource, c.Grant.Epoch, c.Grant.Token, c.Grant.Holder, c.Seq, c.Tx, tx)
}

// beginCheckCall is the begin check of such a transaction.
func beginCheckCall(c storage.Claim, tx storage.TxID) string {
	return fmt.Sprintf("select fence.begin_check(%d, %d, %d, %d, 3600000, 3600000, 3600000, 3600000, 0)", c.Resource, c.Grant.Epoch, c.Grant.Token, tx)
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

// An app role can write anything into the setting that holds the marks of begin checks, but
// it can't seal for a grant whose begin check its transaction hasn't passed.
func TestForge_NoSealWithoutItsBeginCheck_G2(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	other := grant(5, "a")
	other.Resource = "sku/2"
	c, o := claim(t, store, grant(5, "a")), claim(t, store, other)
	later := c
	later.Grant.Token++
	for name, before := range map[string]string{
		"a name of its own":                   "select set_config('fencekit.tx', '77.' || pg_current_xact_id(), true)",
		"the begin check of another resource": beginCheckCall(o, 77),
		"the begin check of another name":     beginCheckCall(c, 78),
		"the mark of an earlier one":          beginCheckCall(c, 77) + "; select set_config('fencekit.tx', current_setting('fencekit.tx'), false); commit; begin",
		"an empty mark":                       "select set_config('fencekit.tx', '', true)",
		"the begin check of an absent grant":  beginCheckCall(later, 77),
		"no name":                             "reset fencekit.tx",
		"a claim, and what that writes":       "select fence.claim('sku/1', 1, 5, 'a', 77)",
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, inOne(t, r.app, before+"; insert into item values ('forged', 1); "+sealCall(c, 77)), "SQLSTATE ZF00")
			holds(t, r.admin, "forged", 0)
			require.Equal(t, c, claim(t, store, c.Grant))
		})
	}
	_, err := r.app.Exec(t.Context(), "select fence.mark($1, 1, 5, 77)", c.Resource)
	require.ErrorContains(t, err, "42501")
	require.NoError(t, inOne(t, r.app, beginCheckCall(c, 77)+"; "+beginCheckCall(o, 77)+"; "+sealCall(c, 77)+"; "+sealCall(o, 77)), "the marks of both begin checks count")
}

// An operation that ends its transaction can't begin another one under the same name: the
// setting doesn't contain the name.
func TestForge_TheMarkHidesTheName_N15(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	c := claim(t, store, grant(5, "a"))
	txn := begin(t, store, c)
	var marks string
	require.NoError(t, txn.Run(t.Context(), do(func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select current_setting('fencekit.tx')").Scan(&marks)
	})))
	claims, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	require.NotContains(t, marks, fmt.Sprint(int64(claims[0].Tx)))
}

// A key is kept only by a transaction that has passed a begin check: a claim also moves the
// fence, under a name of the caller's choice, but that is not enough.
func TestForge_NoKeyWithoutABeginCheck_G2(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	c := claim(t, newStore(t, r.app, nil), grant(5, "a"))
	keep := fmt.Sprintf("call fence.keep(%d, 77, '6b', repeat('00', 32), '31')", c.Resource)
	for _, before := range []string{
		"select fence.claim('sku/1', 1, 6, 'b', 77)",
		"select set_config('fencekit.tx', '77.' || pg_current_xact_id(), true); select fence.claim('sku/1', 1, 6, 'b', 77)",
		voidCall(c, 77),
		beginCheckCall(c, 77),
	} {
		require.ErrorContains(t, inOne(t, r.app, before+"; "+keep), "(SQLSTATE ZF003)", before)
	}
	require.Zero(t, query[int](t, r.admin, "select count(*) from fence.operation"))
}

// An app role is trusted with what guarantees.md says: it can write under a holder's grant,
// and keep a holder from committing. It can't make a holder's transaction commit on changed
// data, nor change data without an entry in the history.
func TestForge_WhatAnAppRoleIsTrustedFor(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := claim(t, store, grant(5, "a"))
	for name, forge := range map[string]func(c storage.Claim) string{
		"another transaction under the grant": func(c storage.Claim) string { return beginCheckCall(c, 77) + "; " + sealCall(c, 77) },
		"a position voided":                   func(c storage.Claim) string { return voidCall(c, 78) },
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
	require.NoError(t, inOne(t, r.app, "select fence.claim('sku/1', 1, 6, 'forged', 77)"))
	_, err := txn.Commit(t.Context(), nil)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	holds(t, r.admin, "x", 0)
	verifyChain(t, r.admin)
}

// A forger knows every input of a mark except the secret.
func TestForge_TheMarkTakesTheSecret_G2(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	c := claim(t, newStore(t, r.app, nil), grant(5, "a"))
	forged := fmt.Sprintf(`select set_config('fencekit.tx', encode(sha256(%%s int4send(%d) || int8send(1) || int8send(5)
		|| int8send(77) || xid8send(pg_current_xact_id())), 'hex'), true)`, c.Resource)
	secret := query[[]byte](t, r.admin, "select value from fence.secret")
	require.Len(t, secret, 32)
	require.NoError(t, inOne(t, r.app, fmt.Sprintf(forged, fmt.Sprintf(`'\x%x' ||`, secret))+"; "+sealCall(c, 77)), "made as the begin check makes it")
	c = claim(t, newStore(t, r.app, nil), c.Grant)
	require.ErrorContains(t, inOne(t, r.app, fmt.Sprintf(forged, "")+"; "+sealCall(c, 77)), "(SQLSTATE ZF003)")
	mustExec(t, r.admin, "delete from fence.secret")
	require.ErrorContains(t, inOne(t, r.app, "set local fencekit.tx = 'x'; "+beginCheckCall(c, 77)+"; "+sealCall(c, 77)), "(SQLSTATE ZF003)", "without a secret there is no mark")
}

// A session can make the server log the plans of its functions. The secret isn't in them.
func TestForge_TheSecretIsNotPrinted(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	c := claim(t, newStore(t, r.app, nil), grant(5, "a"))
	var printed strings.Builder
	pool := openPool(t, r.dsn, as(r.service(t)), with(map[string]string{
		"client_min_messages": "log", "debug_print_parse": "on", "debug_print_rewritten": "on", "debug_print_plan": "on",
	}), func(cfg *pgxpool.Config) {
		cfg.MaxConns = 1
		cfg.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { printed.WriteString(n.Message + n.Detail + "\n") }
	})
	require.NoError(t, inOne(t, pool, beginCheckCall(c, 77)+"; "+sealCall(c, 77)))
	require.Contains(t, printed.String(), "PLANNEDSTMT")
	secret := query[[]byte](t, r.admin, "select value from fence.secret")
	var list strings.Builder // as the server prints the bytes of a constant
	for _, b := range secret[:8] {
		fmt.Fprintf(&list, "%d ", int8(b))
	}
	for _, form := range []string{list.String(), fmt.Sprintf("%x", secret[:8])} {
		require.NotContains(t, printed.String(), form)
	}
}

// A void or a claim under the name of a transaction in doubt doesn't make that
// transaction's COMMIT count as applied.
func TestForge_OnlyAWriteIsACommit_G4(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := claim(t, store, grant(5, "a"))
	for _, forge := range []string{voidCall(c, 77), "select fence.claim('sku/1', 1, 6, 'b', 77)"} {
		c = claim(t, store, grant(c.Grant.Token, c.Grant.Holder))
		require.NoError(t, inOne(t, r.app, forge))
		applied, err := store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 77})
		require.NoError(t, err)
		require.False(t, applied)
	}
}
