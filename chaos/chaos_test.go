package chaos

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

// Faults are harmless to Fencekit, and the controls that link no other client break. The other
// families run in .ci/run, and in the tests of examples; "make chaos" runs them all.
func TestRun_FencekitHoldsWhereControlsBreak(t *testing.T) {
	Test(t, Config{
		Scenarios: []string{"partitions", "crashes", "lock-service", "lost-lock", "unhindered-writer", "answers"},
		Groups:    []string{Fenced, "etcd-mutex", "postgres-advisory"},
		Parallel:  2,
	})
}

// named is a workload with a name and resources alone.
type named struct {
	name      string
	resources []string
}

func (w named) Name() string                               { return w.name }
func (w named) Resources() []string                        { return w.resources }
func (named) Prepare(context.Context, *pgxpool.Pool) error { return nil }
func (named) Operate(context.Context, *Env, Op) error      { return nil }
func (named) Check(context.Context, *pgxpool.Pool) error   { return nil }

// namesake is another type of workload.
type namesake struct{ named }

// register does what Reexec does, for one test.
func register(t *testing.T, workloads ...Workload) {
	before := registered
	if registered = nil; workloads != nil {
		registered = withStock(workloads)
	}
	t.Cleanup(func() { registered = before })
}

func TestConfig_SaysWhatIsWrongWithAWorkload(t *testing.T) {
	good := named{"good", []string{"r"}}
	over, cancel := context.WithCancel(t.Context()) // a config that isn't rejected begins no run
	cancel()
	for name, c := range map[string]struct {
		registered []Workload
		workload   Workload
		says       string
	}{
		"nothing was called":  {nil, good, "call chaos.Main in TestMain, or chaos.Reexec first in main"},
		"it was not given":    {[]Workload{}, good, `this binary has no workload "good": give it to chaos.Main or chaos.Reexec`},
		"two of one name":     {[]Workload{good, namesake{good}}, good, `chaos.named and chaos.namesake are both named "good"`},
		"the built-in's name": {[]Workload{named{"stock", good.resources}}, nil, `worker.Stock and chaos.named are both named "stock"`},
		"another of its name": {[]Workload{good}, namesake{good}, `"good" is chaos.namesake here, and was chaos.named for chaos.Main`},
		"no name":             {[]Workload{named{}}, named{}, "the Name of chaos.named is empty"},
		"no resources":        {[]Workload{named{name: "good"}}, named{name: "good"}, `"good" has no Resources: name at least one`},
		"a bad resource":      {[]Workload{named{"good", []string{"r", ""}}}, named{"good", []string{"r", ""}}, `Resources of workload "good": fence:`},
	} {
		t.Run(name, func(t *testing.T) {
			register(t, c.registered...)
			_, err := Run(over, Config{Workload: c.workload, Dir: t.TempDir()})
			require.ErrorIs(t, err, ErrConfig)
			require.ErrorContains(t, err, c.says)
		})
	}
	register(t, good)
	require.NoError(t, isRegistered(named{"good", []string{"other"}}))
}
