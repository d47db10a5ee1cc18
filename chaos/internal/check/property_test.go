package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
)

// found returns the finding of a property.
func found(t *testing.T, r *check.Record, property string) check.Finding {
	t.Helper()
	for _, f := range check.All(r) {
		if f.Property == property {
			return f
		}
	}
	require.Fail(t, "no such property", property)
	return check.Finding{}
}

// spoiled is a good run with one thing changed.
type spoiled struct {
	name  string
	spoil func(m *made)
	want  check.Status
}

// flags checks that each spoiled run has the status that it should have, and an example if violated.
func flags(t *testing.T, property string, table []spoiled) {
	require.Equal(t, check.Held, found(t, &good().Record, property).Status)
	for _, s := range table {
		t.Run(s.name, func(t *testing.T) {
			m := good()
			s.spoil(m)
			f := found(t, &m.Record, property)
			require.Equal(t, s.want, f.Status, "%+v", f)
			require.NotEmpty(t, f.Detail)
			if s.want == check.Violated {
				require.NotEmpty(t, f.Examples)
			}
		})
	}
}

func TestAll_HoldsForAGoodRun(t *testing.T) {
	for _, f := range check.All(&good().Record) {
		require.Equal(t, check.Held, f.Status, "%+v", f)
		require.NotEmpty(t, f.Title)
		require.NotEmpty(t, f.Detail)
	}
}

// Few properties apply to a control, and none of the data to a user's workload.
func TestAll_SaysWhatDoesNotApply(t *testing.T) {
	relevant := func(fenced, stock bool) (names []string) {
		m := good()
		m.Fenced, m.Stock = fenced, stock
		for _, f := range check.All(&m.Record) {
			if f.Status == check.Irrelevant {
				require.NotEmpty(t, f.Detail)
				continue
			}
			names = append(names, f.Property)
		}
		return names
	}
	require.Equal(t, []string{"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13", "run", "workload"}, relevant(true, true))
	require.Equal(t, []string{"I1", "I5", "I6", "I7", "I8", "I9", "I11", "I12", "I13", "run", "workload"}, relevant(true, false))
	require.Equal(t, []string{"I2", "I3", "I4", "I9", "run", "workload"}, relevant(false, true))
	require.Equal(t, []string{"I9", "run", "workload"}, relevant(false, false))
}

func TestAll_GivesFewExamplesAndCountsAll(t *testing.T) {
	m := good()
	m.Observed.Effects = nil
	f := found(t, &m.Record, "I4")
	require.Len(t, f.Examples, 5)
	require.Contains(t, f.Detail, "9 counterexamples")
}

func TestRun_PassesOnWhatWentWrongBesideTheData(t *testing.T) {
	flags(t, "run", []spoiled{
		{"it hung", func(m *made) { m.Wrong = "chaos: it hangs" }, check.Violated},
	})
}

func TestWorkload_PassesOnWhatItSaid(t *testing.T) {
	flags(t, "workload", []spoiled{
		{"it failed", func(m *made) { m.Workload = "sku/1: sold out of nothing" }, check.Violated},
	})
}

func TestRequired(t *testing.T) {
	flags(t, "I11", []spoiled{
		{"one is missing", func(m *made) { m.Requires = append(m.Requires, check.HitRejected+"begin") }, check.Unchecked},
	})
	m := good()
	m.Requires = nil
	require.Equal(t, check.Irrelevant, found(t, &m.Record, "I11").Status)
}
