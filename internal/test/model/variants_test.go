package model

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"
)

// variant is a row of the table: a protocol, its bounds and the expected result.
type variant struct {
	// Name says what it is, and is its own.
	Name string
	// Want is the golden result.
	Want Violation
	// Bounds are clients x grants x operations, and what is out of the ordinary.
	Bounds string
	// Within is the name of the variant in which nothing is broken within the same bounds and
	// under the same faults; "" where nothing is broken.
	Within string

	Explore func() (Result, error)
	Replay  func([]Step) ([]Violation, error)
}

// stateLimit is far above what any variant needs, and well below what hurts.
const stateLimit = 200_000

// of makes a variant of m.
func of(name string, want Violation, m Protocol) variant {
	return variant{
		Name: name, Want: want, Bounds: m.bounds(),
		Explore: func() (Result, error) { return Explore(m, stateLimit) },
		Replay:  func(steps []Step) ([]Violation, error) { return Replay(m, steps) },
	}
}

// variants returns the whole table.
func variants() []variant {
	var all []variant
	for _, f := range families() {
		all = append(all, of(f.name, f.want, f.protocol))
		for _, b := range f.broken {
			m := f.protocol
			m.Mutation, m.DataOnly = b.by, b.dataOnly
			v := of(b.name, b.want, m)
			v.Within = f.name
			all = append(all, v)
		}
	}
	return all
}

// bounds writes the bounds of m: clients x grants x operations, then faults.
func (m Protocol) bounds() string {
	words := []string{fmt.Sprintf("%d x %d x %d", m.Clients, m.Grants, m.Ops)}
	for _, w := range []struct {
		on   bool
		name string
	}{
		{m.Resources > 1, "two resources"},
		{m.Batch > 1, fmt.Sprintf("batches of %d", m.Batch)},
		{m.Keys > 0, fmt.Sprintf("keys: %d", m.Keys)},
		{m.Own, "claims within transactions"},
		{m.Leased, "claims under leases within transactions"},
		{m.DataOnly, "judged by data and answers"},
	} {
		if w.on {
			words = append(words, w.name)
		}
	}
	faults := reflect.ValueOf(m.Faults)
	for i := range faults.NumField() {
		if !faults.Field(i).IsZero() {
			words = append(words, faults.Type().Field(i).Name)
		}
	}
	return strings.Join(words, ", ")
}

// outcome is a variant explored.
type outcome struct {
	variant
	Result
	err error
}

// explored explores the whole table once for all tests, two variants at a time.
var explored = sync.OnceValue(func() []outcome {
	all := variants()
	outcomes := make([]outcome, len(all))
	var wg sync.WaitGroup
	turns := make(chan struct{}, 2)
	for i, v := range all {
		wg.Go(func() {
			turns <- struct{}{}
			result, err := v.Explore()
			outcomes[i] = outcome{v, result, err}
			<-turns
		})
	}
	wg.Wait()
	return outcomes
})

// steps drops the descriptions from a counter-example.
func steps(moments []Moment) []Step {
	names := make([]Step, len(moments))
	for i, m := range moments {
		names[i] = m.Step
	}
	return names
}

func TestVariants_GoldenResults(t *testing.T) {
	for _, o := range explored() {
		t.Run(o.Name, func(t *testing.T) {
			require.NoError(t, o.err)
			require.Equal(t, o.Want.String(), o.Violation.String(), "%s", Format(o.Schedule))
			if o.Violation != Holds {
				t.Logf("%s (%s): %v\n%s", o.Name, o.Bounds, o.Violation, Format(o.Schedule))
			}
		})
	}
	t.Log("\n" + format(explored()))
}

// format prints the outcomes for a reader.
func format(outcomes []outcome) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	total := 0
	fmt.Fprintln(w, "variant\tclients x grants x operations, faults\tresult\tstates\tdepth")
	for _, o := range outcomes {
		name := o.Name
		if o.Within != "" {
			name = "- " + name
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%d\n", name, o.Bounds, o.Violation, o.States, o.Depth)
		total += o.States
	}
	_ = w.Flush() // into memory
	return fmt.Sprintf("%s%d variants, %d states", b.String(), len(outcomes), total)
}

// A counter-example is one: run again step by step, nothing is broken before its last step and
// the reported property is broken after it. And what fails, fails for its one change: where
// nothing is broken, the protocol holds, and has no way to follow the schedule.
func TestVariants_CounterExamplesReplay(t *testing.T) {
	byName := map[string]outcome{}
	for _, o := range explored() {
		require.NotContains(t, byName, o.Name)
		byName[o.Name] = o
	}
	for _, o := range explored() {
		if o.Violation == Holds {
			continue
		}
		verdicts, err := o.Replay(steps(o.Schedule))
		require.NoError(t, err, o.Name)
		last := len(verdicts) - 1
		require.GreaterOrEqual(t, last, 0, o.Name)
		require.Equal(t, o.Violation, verdicts[last], o.Name)
		for _, before := range verdicts[:last] {
			require.Equal(t, Holds, before, o.Name)
		}
		if o.Within != "" {
			require.Equal(t, Holds, byName[o.Within].Want, o.Name)
			_, err = byName[o.Within].Replay(steps(o.Schedule))
			require.Error(t, err, o.Name)
		}
	}
}

// Every property is broken by some variant: a check that nothing can trip is none. Only Stuck
// isn't, which has a test of its own.
func TestVariants_EveryPropertyIsBrokenBySome(t *testing.T) {
	found := map[Violation]bool{}
	for _, o := range explored() {
		found[o.Violation] = true
	}
	for v := Holds; v < Stuck; v++ {
		require.True(t, found[v], "no variant: %v", v)
	}
}

// The protocol's runs are not vacuous: each of these was taken in some run in which the protocol
// holds.
func TestVariants_EveryStepIsExamined(t *testing.T) {
	all := map[string]int{}
	for _, o := range explored() {
		if o.Want == Holds && o.Within == "" {
			maps.Copy(all, o.Taken)
		}
	}
	require.ElementsMatch(t, []string{
		"is granted token #", "is granted token # once more", "is granted token # of resource 2 alone",
		"gets the grant of holder #", "drops its grant",
		"claims resource #", "claims resource # again", "claims resource #, the reply is lost",
		"claim rejected by resource #: stale", "claim rejected by resource #: collision", "begin check rejected by resource #: stale",
		"runs user code: reads", "runs user code: relies on what its grant left",
		"sends seal and COMMIT of tx #", "COMMIT of tx # arrives: applied", "COMMIT of tx # arrives: rejected",
		"learns that tx # committed", "gives up waiting for tx #",
		"seal rejected by resource #: stale", "seal rejected by resource #: overtaken",
		"seal rejected by resource #: collision", "seal rejected by resource #: database went back",
		"resolves by resource #: voids the position", "resolves by resource #: voids, the reply is lost",
		"resolves by resource #: own entry, applied", "resolves by resource #: not its entry, never applied",
		"resolves by resource #: no entry, stays unknown",
		"looks key # up: nothing", "looks key # up: found, answered", "looks key # up: used for another request", "looks key # up: the fence has moved",
		"leaves op # unknown",
		"deletes entry # of resource 1",
		"runs user code: reads on another connection", "begins its transaction",
		"claim rejected by resource #: database failed over", "begin check rejected by resource #: database failed over",
		"begin check rejected by resource #: database went back",
		"locks fences under its grants", "creates fences", "locks fences", "locks fences of resource 2 alone", "ends its transaction",
		"draws tokens, runs user code: reads", "COMMIT of tx # arrives: claimed and applied", "ends tx #",
		"resolves by resource #: has the lock, never applied", "is granted locks", "is granted locks of resource 2 alone",
		"queues for locks", "queues for locks of resource 2 alone", "stops waiting", "ends the session of holder #",
		"catches up", "takes over", "copies the volume", "restores the volume",
		"op # fails, its transaction is rolled back",
	}, slices.Collect(maps.Keys(all)))
}
