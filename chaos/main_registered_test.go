package chaos

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

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
	called, before := registered.called, registered.workloads
	registered.called, registered.workloads = workloads != nil, workloads
	t.Cleanup(func() { registered.called, registered.workloads = called, before })
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
		"the built-in's name": {[]Workload{named{"stock", good.resources}}, nil, `stock.Stock and chaos.named are both named "stock"`},
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
	_, err := Config{Workload: named{"good", []string{"other"}}, Dir: "d"}.internal()
	require.NoError(t, err)
}
