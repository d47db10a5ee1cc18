package model_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/model"
)

// outcome is a variant explored.
type outcome struct {
	model.Variant
	model.Result
	err error
}

// explored explores the whole table once for all tests, two variants at a time.
var explored = sync.OnceValue(func() []outcome {
	variants := model.Variants()
	outcomes := make([]outcome, len(variants))
	var wg sync.WaitGroup
	turns := make(chan struct{}, 2)
	for i, v := range variants {
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
func steps(moments []model.Moment) []model.Step {
	names := make([]model.Step, len(moments))
	for i, m := range moments {
		names[i] = m.Step
	}
	return names
}

func TestVariants_GoldenResults(t *testing.T) {
	for _, o := range explored() {
		t.Run(o.ID, func(t *testing.T) {
			require.NoError(t, o.err)
			require.Equal(t, o.Want.String(), o.Violation.String(), "%s\n%s", o.Text, model.Format(o.Schedule))
			if o.Violation == model.Holds {
				return
			}
			t.Logf("%s (%s): %v\n%s", o.Text, o.Bounds, o.Violation, model.Format(o.Schedule))
			if o.Unbroken != nil {
				_, err := o.Unbroken.Replay(steps(o.Schedule))
				t.Logf("the protocol in the same schedule: %v", err)
			}
		})
	}
	t.Log("\n" + table(explored()))
}

// table prints the outcomes for a reader.
func table(outcomes []outcome) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	total := 0
	fmt.Fprintln(w, "id\tvariant\tclients x grants x operations, faults\texpected\tresult\tstates\tdepth")
	for _, o := range outcomes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%v\t%v\t%d\t%d\n", o.ID, o.Text, o.Bounds, o.Want, o.Violation, o.States, o.Depth)
		total += o.States
	}
	_ = w.Flush() // into memory
	return fmt.Sprintf("%s%d variants, %d states", b.String(), len(outcomes), total)
}

// A counter-example is one: run again step by step, nothing is broken before its
// last step and the reported property is broken after it.
func TestVariants_CounterExamplesReplay(t *testing.T) {
	for _, o := range explored() {
		if o.Violation == model.Holds {
			continue
		}
		verdicts, err := o.Replay(steps(o.Schedule))
		require.NoError(t, err, o.ID)
		last := len(verdicts) - 1
		require.GreaterOrEqual(t, last, 0, o.ID)
		require.Equal(t, o.Violation, verdicts[last], o.ID)
		for _, before := range verdicts[:last] {
			require.Equal(t, model.Holds, before, o.ID)
		}
	}
}

// What fails, fails for its one change: the protocol holds within the same
// bounds and under the same faults, and has no way to follow the schedule. What is
// stuck at the end of one may be reached, if there is a way on.
func TestVariants_TheProtocolHoldsWhereTheyFail(t *testing.T) {
	for _, o := range explored() {
		if o.Unbroken == nil {
			continue
		}
		result, err := o.Unbroken.Explore()
		require.NoError(t, err, o.ID)
		require.Equal(t, model.Holds.String(), result.Violation.String(), "%s\n%s", o.ID, model.Format(result.Schedule))
		if o.Violation != model.Holds && o.Violation != model.Stuck {
			_, err = o.Unbroken.Replay(steps(o.Schedule))
			require.Error(t, err, o.ID)
		}
	}
}

// Every property is broken by some variant: a check that nothing can trip is
// none.
func TestVariants_EveryPropertyIsBrokenBySome(t *testing.T) {
	found := map[model.Violation]bool{}
	for _, o := range explored() {
		found[o.Violation] = true
	}
	for v := model.Holds; v <= model.Stuck; v++ {
		require.True(t, found[v], "no variant: %v", v)
	}
}

// taken returns the names of the steps that were taken in the rows whose ids begin
// with kind: rows that hold.
func taken(kind string) []string {
	all := map[string]int{}
	for _, o := range explored() {
		if o.Want == model.Holds && strings.HasPrefix(o.ID, kind) {
			maps.Copy(all, o.Taken)
		}
	}
	return slices.Collect(maps.Keys(all))
}

// The protocol's runs are not vacuous: each of these was taken in some run in
// which the protocol holds.
func TestVariants_EveryStepIsExamined(t *testing.T) {
	require.ElementsMatch(t, []string{
		"is granted token #", "is granted token # once more", "is granted token # of resource 2 alone",
		"gets the grant of holder #", "drops its grant",
		"claims resource #", "claims resource # again", "claims resource #, the reply is lost",
		"claim rejected by resource #: stale", "claim rejected by resource #: collision",
		"begin check rejected by resource #: stale",
		"runs user code: reads", "runs user code: relies on what its grant left", "user code fails, nothing is sent",
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
		"catches up", "takes over", "copies the volume", "restores the volume",
		"claims its resources, # hold", "claims its resources, # hold, the reply is lost",
		"claims its resources but 1, which is locked, # hold", "claims its resources but 1, which is locked, # hold, the reply is lost",
		"claims its resources but 2, which is locked, # hold", "claims its resources but 2, which is locked, # hold, the reply is lost",
		"is granted a new token of resource #",
		"read-only: begins, reads", "read-only: reads once more", "read-only: gets no answer",
		"read-only: ends its transaction, and writes in another", "read-only: its transaction has ended, nothing commits",
		"read check passes, answered", "read check rejected by resource #: stale",
		"read check rejected by resource #: overtaken", "read check rejected by resource #: database went back",
	}, taken("P"))
}

func TestVariants_EveryStepOfAcquisitionIsExamined(t *testing.T) {
	require.ElementsMatch(t, []string{
		"has kept resource # from before", "begins, about resources #",
		"takes its turn at resource #", "queues for its turn at resource #", "gives its turn at resource # back",
		"queues for the lock of resource #", "acquires the lock of resource #",
		"uses what is kept of resource #", "can't use resource # any more",
		"learns that another waits for resource #", "learns that its lease of resource # has ended",
		"acquires from resource # on", "acquires from resource # on, contended ones anew",
		"adds resource # to its group", "begins the transaction of its group",
		"has run", "tries again",
		"loses its key of resource #", "loses its session", "has its grant of resource # rejected",
	}, taken("A"))
}

func TestVariants_EveryStepOfRowLocksIsExamined(t *testing.T) {
	require.ElementsMatch(t, []string{
		"claims resources #", "claims resources # of a higher epoch", "seals resources #",
		"creates the fence of resource #", "has created what was missing",
		"locks the mark", "locks the fence of resource #", "has locked its fences", "commits",
	}, taken("R"))
}
