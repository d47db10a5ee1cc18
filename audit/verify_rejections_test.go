package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// No hash covers the record of rejections, and each application may add to it: what it says is no
// finding, whether it is made up, was changed, or names what a restore has lost.
func TestVerify_RejectionsDecideNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do          func(*history)
		unexplained []string
	}{
		"one that names no holder": {func(h *history) {
			mustExec(h.t, h.pool, "select fence.record_one('sku/1', 1, 101, 'x', 'seal', 'ZF005', null)")
		}, nil},
		"one that an application makes up": {func(h *history) {
			mustExec(h.t, h.pool, `select fence.record_one('sku/1', 1, 101, 'x', 'seal', 'ZF001', '{"epoch": 1, "token": 110, "holder": "y"}')`)
		}, []string{`sku/1: The rejection of token 101 of epoch 1 (x) as "stale" names a claim that isn't in the history.`}},
		"one of a resource that isn't there": {func(h *history) {
			mustExec(h.t, h.pool, `select fence.record_one('sku/9', 1, 101, 'x', 'seal', 'ZF001', '{"epoch": 1, "token": 111, "holder": "wörker-0/111"}')`)
		}, []string{`sku/9: The rejection of token 101 of epoch 1 (x) as "stale" names a claim that isn't in the history.`}},
		"one with another holder": {func(h *history) {
			mustExec(h.t, h.pool, "update fence.rejection set current_holder = 'x' where resource = 'sku/1'")
		}, []string{`sku/1: The rejection of token 101 of epoch 1 (wörker-0/101) as "stale" names a claim that isn't in the history.`}},
		"one with another time": {func(h *history) {
			mustExec(h.t, h.pool, "update fence.rejection set current_since = current_since - interval '1 second' where resource = 'sku/1'")
		}, []string{`sku/1: The rejection of token 101 of epoch 1 (wörker-0/101) as "stale" names a claim that isn't in the history.`}},
		"one after a restore, of a resource whose number another has": {restoredNumber,
			[]string{`sku/8: The rejection of token 2199023255553 of epoch 2 (a) as "stale" names a claim that isn't in the history.`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, evidence.Database(t))
			c.do(newHistory(t, pool, 1))
			d, err := audit.Open(pool, "")
			require.NoError(t, err)
			for _, r := range []audit.Report{
				verify(t, pool, audit.VerifyOptions{}), verifyExports(t, audit.VerifyOptions{}, export(t, d, "")),
			} {
				requireHonest(t, r)
				var unexplained []string
				for _, f := range r.Unexplained {
					unexplained = append(unexplained, f.String())
				}
				require.Equal(t, c.unexplained, unexplained)
				require.EqualValues(t, len(c.unexplained), r.TotalUnexplained)
			}
		})
	}
}

// restoredNumber restores a dump while a process goes on: it is rejected by the fence of another
// resource, which has been given the number of its own.
func restoredNumber(h *history) {
	claim := func(resource string, token fence.Token, holder string) storage.Claim {
		claims, err := h.store.Claim(h.t.Context(), storage.Claim{Grant: fence.Grant{Resource: resource, Epoch: 2, Token: token, Holder: holder}})
		require.NoError(h.t, err)
		return claims[0]
	}
	h.save()
	before := claim("sku/8", 1<<41+1, "a")
	h.putBack()
	mustExec(h.t, h.pool, "select setval(pg_get_serial_sequence('fence.resource', 'id'), (select max(id) from fence.resource))")
	require.Equal(h.t, before.Resource, claim("sku/7", 1<<41+2, "b").Resource)
	require.Error(h.t, h.attempt(before))
}
