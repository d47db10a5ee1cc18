package review_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/review"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

var update = flag.Bool("update", false, "write the golden texts anew")

// golden compares a text with a file.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "if that is meant: go test ./internal/review -update")
}

// Each explanation is on a page of 80 columns and 45 lines.
func TestWhy_IsOnePageInPlainWords(t *testing.T) {
	t.Parallel()
	w := sold(t)
	for name, q := range map[string]review.Question{
		"latest":             {Resource: "sku/42"},
		"rejection":          {Resource: "sku/42", Rejection: 1},
		"token":              {Resource: "sku/42", Token: 140},
		"token-unknown":      {Resource: "sku/42", Token: 7},
		"operation":          {Resource: "sku/42", OpID: "order-3"},
		"operation-of-group": {Resource: "sku/42", OpID: "order-4"},
		"operation-unknown":  {Resource: "sku/42", OpID: "order-2"},
		"claim":              {Resource: "sku/42", Position: 3},
		"first-claim":        {Resource: "sku/42", Position: 1},
		"void":               {Resource: "sku/42", Position: 8},
		"position-unknown":   {Resource: "sku/42", Position: 99},
		"no-rejection":       {Resource: "sku/7"},
		"rejection-unknown":  {Resource: "sku/42", Rejection: 99},
		"resource-unknown":   {Resource: "sku/*"},
	} {
		var text bytes.Buffer
		require.NoError(t, w.why(q).Text(&text, 80))
		for line := range strings.Lines(text.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
		}
		require.LessOrEqual(t, strings.Count(text.String(), "\n"), 45)
		golden(t, "why-"+name+".txt", text.String())
	}
	require.Equal(t, w.why(review.Question{Resource: "sku/42"}), w.why(review.Question{Resource: "sku/42", Token: 118}), "the latest rejection is that of this token")
}

// "Why did this run twice?" asks about a resource that changed hands without a rejection.
func TestWhy_WithoutARejectionTellsTheLastClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sell("run-1", grant("job/1", 1, "worker-a"))
	w.sell("run-1", grant("job/1", 2, "worker-b"))
	w.group(grant("job/1", 3, "worker-c"))
	for token := range fence.Token(12) {
		w.sell("run", grant("job/2", token+1, "worker"))
	}
	w.setTimes()
	w.exec("insert into fence.lock_eviction (resource, epoch, token, holder, reason, operator, at) values ('job/1', 1, 1, 'worker-a', 'it hangs', 'ops@vm', '2026-03-03 10:02:30+00')")
	x := w.why(review.Question{Resource: "job/1"})
	require.Len(t, x.Claims, 3)
	var text bytes.Buffer
	require.NoError(t, x.Text(&text, 80))
	golden(t, "why-claims.txt", text.String())

	x = w.why(review.Question{Resource: "job/2"})
	require.Len(t, x.Claims, 10)
	require.EqualValues(t, 5, x.Claims[0].Claim.Position)
	require.EqualValues(t, 4, x.History[0].Position, "the entry before it")
	require.EqualValues(t, 24, x.Claims[9].Last.Position)
}

// What was recorded is shown, and does nothing.
func TestWhy_ShowsWhatTheRecordSaysWithoutObeyingIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hostile := grant("<b>*", 1, "</title><script>")
	w.sell("<img src=x>", hostile)
	w.exec(`alter table fence.history disable trigger all; update fence.history set holder = E'</title><script>\u202e\x1b[2J' where kind = 'c'`)
	x := w.why(review.Question{Resource: hostile.Resource, OpID: "<img src=x>"})
	var text bytes.Buffer
	require.NoError(t, x.Text(&text, 80))
	require.NotContains(t, text.String(), "\x1b")
	require.NotContains(t, text.String(), "\u202e")
	require.Contains(t, text.String(), "<img src=x>")
	require.ErrorIs(t, x.Text(fullDisk{}, 80), errFull)
}

// What was pruned may have been: only a complete history shows that something was not.
func TestWhy_DoesNotConcludeFromWhatWasPruned(t *testing.T) {
	t.Parallel()
	w := sold(t)
	w.exec("alter table fence.history enable always trigger protect_kept_history; update fence.setting set history_keep = '1 day', history_keep_entries = 1")
	w.exec("update fence.history set at = at - interval '10 years'; update fence.rejection set first_at = '2026-03-03 10:05:15.5+00'; select fence.prune_by_policy('', 5)")
	pruned := w.why(review.Question{Resource: "sku/42", OpID: "order-1"})
	require.Equal(t, review.EffectUnknown, pruned.Effect)
	require.NotNil(t, pruned.Pruned)
	require.Contains(t, pruned.Conclusion, "were pruned: it may have taken effect before that")
	position := w.why(review.Question{Resource: "sku/42", Position: pruned.Pruned.First - 2})
	require.Contains(t, position.Conclusion, "was pruned")
	require.Contains(t, position.Facts[0].Text, "was pruned: what came before position")
	require.Equal(t, review.EffectNone, w.why(review.Question{Resource: "sku/42"}).Effect, "a rejection never takes effect")
	require.Contains(t, w.why(review.Question{Resource: "sku/42", Rejection: 1}).Facts[1].Text, "or no longer")
}

func TestMain(m *testing.M) { testenv.Main(m) }

var template = pgserver.Template{Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := postgres.Migrate(ctx, pool, "")
	return err
}}
