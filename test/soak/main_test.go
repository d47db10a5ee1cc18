package soak_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/fencekit/fencekit/internal/testenv"
)

// Flags, after -args. Their defaults are those of a run that ends in seconds.
var (
	opsFlag        = flag.Int("ops", 200, "operations of the test of transfers")
	durationFlag   = flag.Duration("duration", 10*time.Second, "for how long servers are restarted; every kind of fault happens at least once")
	goroutinesFlag = flag.Int("goroutines", 24, "callers while servers are restarted")
	resourcesFlag  = flag.Int("resources", 3000, "resources that are used once each, and as many that are asked for in vain")
	entriesFlag    = flag.Int("entries", 40_000, "entries of the history that are written and pruned")
	seedFlag       = flag.Uint64("seed", 0, "of operations and faults; 0 chooses one")
)

func TestMain(m *testing.M) {
	testenv.Reexec()
	if spec := os.Getenv(workerVar); spec != "" {
		os.Exit(beWorker(spec))
	}
	testenv.Main(m)
}

// seed returns the seed of this run, and says it.
func seed(t *testing.T) uint64 {
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64N(1 << 32)
	}
	t.Logf("seed %d", s)
	return s
}

// bag hands out the kinds of faults in random order, each once before any comes
// again: so a short run has them all.
type bag struct {
	random *rand.Rand
	kinds  []fault
	left   []int
	rounds int // that were begun
}

// fault is one kind of fault. It returns when it is over.
type fault struct {
	name   string
	happen func() error
}

func (b *bag) next() fault {
	if len(b.left) == 0 {
		b.left = b.random.Perm(len(b.kinds))
		b.rounds++
	}
	kind := b.kinds[b.left[0]]
	b.left = b.left[1:]
	return kind
}
