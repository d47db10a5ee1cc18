package audit_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
)

var (
	honest     = flag.Int("honest", 12, "how many honest histories TestVerify_FindsNothingInHonestHistories makes")
	honestSeed = flag.Uint64("honest-seed", 1, "the seed of the first one")
)

// Honest histories of everything that a store does, and their exports: nothing is found in them.
func TestVerify_FindsNothingInHonestHistories(t *testing.T) {
	t.Parallel()
	for i := range *honest {
		seed := *honestSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, template.Database(t))
			h := newHistory(t, pool, seed)
			for range 4 {
				h.grow(15)
				r := verify(t, pool, audit.VerifyOptions{})
				requireHonest(t, r)
				var entries int64
				require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from fence.history").Scan(&entries))
				require.Equal(t, entries, r.Entries)
				requireHonest(t, verify(t, pool, audit.VerifyOptions{Known: heads(t, pool)}))
				d, err := audit.Open(pool, "")
				require.NoError(t, err)
				requireHonest(t, verifyExports(t, audit.VerifyOptions{}, export(t, d, "")))
			}
		})
	}
}
