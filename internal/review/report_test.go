package review_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/review"
)

func at(clock string) time.Time {
	t, err := time.Parse(time.DateTime, "2026-03-03 "+clock)
	if err != nil {
		panic(err)
	}
	return t
}

// honest gives the history fixed times and hashes that fit them, as if it had been made then.
func (w *world) honest() {
	w.Helper()
	w.exec(`do $$
		declare h fence.history; v_last bytea;
		begin
			for h in select * from fence.history order by resource, seq loop
				if h.seq = 1 then
					v_last := sha256(convert_to('fencekit:' || h.name, 'UTF8'));
				end if;
				v_last := sha256(v_last || int4send(h.resource) || int8send(h.seq) || charsend(h.kind) || int8send(h.claim) || int8send(h.tx)
					|| xid8send(h.xid) || timestamptz_send(h.at) || case h.kind
						when 'c' then int8send(h.epoch) || int8send(h.token) || int4send(h.timeline) || int4send(octet_length(convert_to(h.holder, 'UTF8')))
							|| convert_to(h.holder, 'UTF8') || convert_to(h.name, 'UTF8')
						else coalesce(convert_to(h.ops::text, 'UTF8'), '') end);
				update fence.history set hash = v_last where resource = h.resource and seq = h.seq;
				update fence.resource set hash = v_last where id = h.resource;
			end loop;
		end $$;
		alter table fence.history enable always trigger protect_history;
		alter table fence.history enable always trigger protect_kept_history`)
}

func (w *world) report(p review.Period) *review.Report {
	w.Helper()
	report, err := w.reader.Report(w.Context(), p)
	require.NoError(w, err)
	return report
}

func text(t *testing.T, report *review.Report) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, report.Text(&b, 80))
	return b.String()
}

func TestReport_AnswersInItsFirstSentence(t *testing.T) {
	t.Parallel()
	w := sold(t)
	w.honest()
	w.exec("create table stock (sku int)")
	report := w.report(review.Period{From: at("10:00:00"), To: at("11:00:00").Add(time.Nanosecond)}) // finer than the server's times
	require.Equal(t, review.VerdictClean, report.Verdict, "%v", report.Verified.Findings)
	report.Verified.At = at("12:00:00")
	golden(t, "report.txt", text(t, report))
	b, err := json.MarshalIndent(report, "", "  ")
	require.NoError(t, err)
	golden(t, "report.json", string(b)+"\n")
	require.ErrorIs(t, report.Text(fullDisk{}, 80), errFull)
}

// Whoever owns the views can make them hide rows. Verdicts come from the tables.
func TestAnswers_DoNotRestOnViews(t *testing.T) {
	t.Parallel()
	w := sold(t)
	period := review.Period{From: time.Now().Add(-time.Hour)}
	why, report := w.why(review.Question{Resource: "sku/42"}), w.report(period)
	for _, view := range []string{"entry", "current_fence"} {
		w.exec("do $$ begin execute 'create or replace view fence." + view + " as select * from (' || rtrim(pg_get_viewdef('fence." + view + "'), ';') || ') v where false'; end $$")
	}
	require.Equal(t, why, w.why(review.Question{Resource: "sku/42"}))
	again := w.report(period)
	require.Equal(t, report.Counts, again.Counts)
	require.Equal(t, report.Claims, again.Claims)
	require.NotEmpty(t, again.Verified.Findings, "the views are found")
}

func TestReport_SaysWhatDoesNotVerify(t *testing.T) {
	t.Parallel()
	w := sold(t)
	w.honest()
	w.exec(`alter table fence.history disable trigger all; update fence.history set claim = 1 where seq = 4; alter table fence.history enable always trigger protect_history;
		alter table fence.history enable always trigger protect_kept_history`)
	report := w.report(review.Period{From: at("10:00:00"), To: at("11:00:00")})
	require.Equal(t, review.VerdictViolated, report.Verdict)
	require.Contains(t, report.Answer, "The record can't be relied on: its verification has")
	require.NotContains(t, report.Answer, "each under the grant")
	require.Contains(t, text(t, report), "\nFindings of the verification\n")
}

func TestReport_DoesNotAnswerForWhatWasPruned(t *testing.T) {
	t.Parallel()
	w := sold(t)
	w.exec("update fence.history set at = at - interval '10 years'; update fence.resource set claimed_at = claimed_at - interval '10 years'; update fence.rejection set current_since = current_since - interval '10 years'")
	w.honest()
	w.exec("update fence.setting set history_keep = '1 day', history_keep_entries = 1; select fence.prune_by_policy('', 5)")
	ago := func(clock string) time.Time { return at(clock).AddDate(-10, 0, 0) }
	report := w.report(review.Period{From: ago("10:00:00"), To: ago("11:00:00")})
	require.Equal(t, review.VerdictIncomplete, report.Verdict, "%v", report.Verified.Findings)
	require.Contains(t, report.Answer, "entries of 1 resource were pruned that may belong to the time from")
	require.Contains(t, text(t, report), "\nPruned: the history begins here\n")
	require.Equal(t, "entries of the period may have been pruned", report.Lacks)

	report = w.report(review.Period{From: ago("10:30:00"), To: ago("11:00:00")})
	require.Equal(t, review.VerdictClean, report.Verdict, "what was pruned is before that")
}

// The claim of a grant outlives what it wrote.
func TestReport_ShowsTheClaimThatAPruneKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 4 {
		w.sell("order", a)
	}
	w.setTimes()
	w.exec("update fence.history set at = at - interval '10 years'; update fence.resource set claimed_at = claimed_at - interval '10 years'")
	w.honest()
	w.exec("update fence.setting set history_keep = '1 day', history_keep_entries = 1; select fence.prune_by_policy('', 5)")
	report := w.report(review.Period{From: at("10:00:00").AddDate(-10, 0, 0), To: at("11:00:00").AddDate(-10, 0, 0)})
	require.Equal(t, int64(1), report.Pruned[0].Claim)
	require.Contains(t, text(t, report), fmt.Sprintf("position %d, and the claim at 1", report.Pruned[0].First))
	require.Contains(t, w.why(review.Question{Resource: a.Resource, OpID: "none"}).Facts[0].Text, "is gone but for the claim at position 1.")
}

func TestReport_CountsWritesWithoutAGuard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sell("order-1", a)
	w.exec(`create table stock (sku int); create table orders (sku int); create table parts (sku int) partition by range (sku); create table parts_1 partition of parts default;
		select fence.protect_table(t::regclass, '''sku/'' || sku', true) from unnest(array['stock', 'parts']) t`)
	var protected time.Time
	require.NoError(t, w.pool.QueryRow(t.Context(), "select max(at) from fence.protection").Scan(&protected))
	all := review.Period{From: protected, To: time.Now().Add(time.Hour)}
	report := w.report(all)
	require.Equal(t, review.VerdictSoFar, report.Verdict)
	require.Equal(t, []string{"orders"}, report.Unprotected)
	require.Contains(t, report.Answer, "A write without a guard may have left no trace in 1 table.")
	require.Regexp(t, `these\s+were\s+not\s+protected,\s+or\s+not\s+all\s+the\s+time:\s+orders\.`, text(t, report))

	w.exec("insert into stock values (1), (1), (2)")
	w.exec("insert into parts values (1)")
	report = w.report(all)
	require.Equal(t, review.VerdictUnguarded, report.Verdict)
	require.Equal(t, []int64{3, 3}, []int64{report.Counts.Unguarded, report.Counts.UnguardedKinds}, "one for each transaction and resource")
	require.Regexp(t, `^Yes: 3 writes were made without a guard, from .*, to protected tables: stock, parts_1\. Beside them the record shows `, report.Answer)
	require.Contains(t, text(t, report), "\nWrites without a guard\n")

	all.Resources = "sku/2"
	require.EqualValues(t, 1, w.report(all).Counts.Unguarded)
	all.Resources = "sku/42"
	require.Equal(t, review.VerdictSoFar, w.report(all).Verdict)
	all = review.Period{From: protected.Add(-time.Hour), To: protected}
	require.Equal(t, []string{"orders", "parts", "stock"}, w.report(all).Unprotected, "when the period began")
}
