package failover_test

import (
	"flag"
	"testing"

	"github.com/fencekit/fencekit/internal/testenv"
)

// failovers is how often the primary is taken away in each mode.
var failovers = flag.Int("failovers", 4, "how often each mode loses its primary")

func TestMain(m *testing.M) { testenv.Main(m) }
