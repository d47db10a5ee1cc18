package postgres_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres"
)

// BenchmarkServerParts reports what parts of a guarded transaction cost a backend, in
// microseconds of CPU time: that of all of its messages, less that of messages without the part.
// The forms take turns of 20; it compares the median turns.
func BenchmarkServerParts(b *testing.B) {
	s := newServerBench(b, 1)
	state, before := s.store.StateSQL()
	without := map[string]func(begin, commit string) (string, string){
		"digests": func(begin, commit string) (string, string) {
			zero := strings.NewReplacer(state, "0", before, "0")
			return zero.Replace(begin), zero.Replace(commit)
		},
		"leave": func(begin, commit string) (string, string) {
			commit, _, _ = strings.Cut(commit, "; commit; ")
			return begin, commit + "; commit"
		},
		"deferred": func(begin, commit string) (string, string) {
			_, commit, _ = strings.Cut(commit, "call ")
			seal, after, _ := strings.Cut(commit, "; set transaction read only; ")
			_, after, _ = strings.Cut(after, "; commit; ")
			return begin, "call " + seal + "; commit; " + after
		},
		"check": func(_, commit string) (string, string) {
			return "begin; select set_config('fencekit.xid', pg_current_xact_id()::text, true), set_config('fencekit.state', " + state + "::text, false)", commit
		},
		"": func(begin, commit string) (string, string) { return begin, commit },
	}
	turn := func(part string) float64 {
		const times = 20
		began := s.cpu()
		for range times {
			s.id++
			commit, err := s.store.CommitMessage(s.id, s.claims, nil, nil)
			require.NoError(b, err)
			begin, commit := without[part](s.store.BeginMessage(s.claims), commit)
			s.exec(begin)
			s.exec(commit)
			s.claims = postgres.MovedBy(s.id, s.claims)
		}
		return (s.cpu() - began) / times
	}
	took := map[string][]float64{}
	for part := range without { // plans and caches
		turn(part)
	}
	for b.Loop() {
		for part := range without {
			took[part] = append(took[part], turn(part))
		}
	}
	for part, turns := range took {
		if part != "" {
			b.ReportMetric(median(took[""])-median(turns), part+"-us")
		}
	}
}
