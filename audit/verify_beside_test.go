package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
)

// Verification reads one state, whatever is written or pruned beside it.
func TestVerify_FindsNothingBesideWritersAndPrunes(t *testing.T) {
	t.Parallel()
	pool := openPool(t, template.Database(t))
	h := newHistory(t, pool, 7)
	h.grow(30)
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	known := heads(t, pool)
	reports, ended := make(chan audit.Report, 20), make(chan error)
	go func() {
		for range cap(reports) {
			r, err := d.Verify(t.Context(), audit.VerifyOptions{Known: known})
			if err != nil {
				ended <- err
				return
			}
			reports <- r
		}
		ended <- nil
	}()
	for n := 0; ; n++ {
		select {
		case err := <-ended:
			require.NoError(t, err)
			require.Positive(t, n)
			for range cap(reports) {
				r := <-reports
				requireHonest(t, r)
				require.EqualValues(t, len(known), r.Heads+r.Unprovable.Heads)
			}
			return
		default:
			for _, step := range []func(*history){(*history).write, (*history).claimOne, (*history).rejected, (*history).prune, (*history).void} {
				step(h)
			}
		}
	}
}
