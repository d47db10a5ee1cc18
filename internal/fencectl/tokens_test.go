package fencectl

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// sold returns a database with a history, at times that golden outputs can name: worker-a
// claims sku/42 and sells, worker-b claims it, worker-a is rejected twice, worker-b sells, and a
// COMMIT of worker-b is ruled out. sku/7 is claimed by worker-b.
func sold(t *testing.T) (dsn string) {
	t.Helper()
	dsn = migrated(t)
	sellIn(t, dsn)
	return dsn
}

func sellIn(t *testing.T, dsn string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	claim := func(resource string, token fence.Token, holder string) storage.Claim {
		claims, err := store.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: resource, Epoch: 1, Token: token, Holder: holder}})
		require.NoError(t, err)
		return claims[0]
	}
	sell := func(c storage.Claim, ops ...storage.OpRecord) (storage.Claim, error) {
		txn, err := store.Begin(t.Context(), c)
		require.NoError(t, err)
		claims, err := txn.Commit(t.Context(), []storage.Move{{Ops: ops}})
		if err != nil {
			return storage.Claim{}, err
		}
		return claims[0], nil
	}
	a, err := sell(claim("sku/42", 118, "worker-a/0011223344556677"), storage.OpRecord{ID: "order-1", Name: "sell", Attrs: map[string]string{"qty": "2"}}, storage.OpRecord{ID: "order-2"})
	require.NoError(t, err)
	b := claim("sku/42", 131, "worker-b/8899aabbccddeeff")
	for range 2 {
		_, err = sell(a)
		require.ErrorIs(t, err, storage.ErrStaleToken)
	}
	b, err = sell(b, storage.OpRecord{ID: "order-3", Name: "sell", Attrs: map[string]string{"qty": "1"}})
	require.NoError(t, err)
	_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{b}, Tx: 1})
	require.NoError(t, err)
	claim("sku/7", 140, "worker-b/ffeeddccbbaa9988")
	require.NoError(t, execute(t, connect(t, dsn), `alter table fence.history disable trigger all;
		update fence.history set at = '2026-03-03 10:00:00.5+00'::timestamptz + seq * interval '1 minute';
		update fence.rejection set first_at = '2026-03-03 10:03:30+00', last_at = '2026-03-03 10:05:30+00'`))
}

// What the flags admit, as kind and position.
func TestTokensHistory_AdmitsWhatTheFlagsSay(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	const all = "claim 1, write 2, claim 3, rejection, write 4, void 5"
	for flags, want := range map[string]string{
		"sku/42":                              all,
		"sku/*":                               all + ", claim 1",
		"sku/42 --since 2026-03-03T10:03:00Z": "claim 3, rejection, write 4, void 5",
		"sku/42 --until 2026-03-03T11:02:30+01:00": "claim 1, write 2",
		"sku/42 --since 1h":                        "",
		"sku/42 --since 99999d":                    all,
		"sku/42 --kind claim,rejection":            "claim 1, claim 3, rejection",
		"sku/42 --kind void --kind write":          "write 2, write 4, void 5",
		"sku/42 --holder worker-a/*":               "claim 1, write 2, rejection",
		"sku/42 --op-id order-2":                   "write 2",
		"sku/42 --op-name sell":                    "write 2, write 4",
	} {
		got := fencectl(t, append([]string{"tokens", "history", "--database-url", dsn, "-o", "json"}, strings.Fields(flags)...)...)
		require.Equal(t, cli.ExitOK, got.Code, "%s: %s", flags, got.Stderr)
		require.Equal(t, want, strings.Join(summaries(t, got.Stdout), ", "), flags)
		if want == "" {
			require.Equal(t, "nothing matches\n", got.Stderr)
		}
	}
}

// A mistyped name is no empty history. What the database has any trace of isn't unknown: here a lock that never claimed,
// a rejection, a hold, and a resource whose history was pruned but for its last entry.
func TestResource_OfAnUnknownNameIsAnError(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	require.NoError(t, execute(t, connect(t, dsn), `
		insert into fence.lock (resource, epoch, token) values ('locked', 1, 1);
		insert into fence.hold (name, reason, role) values ('held', 'case 7', 'postgres');
		select fence.record_one('rejected', 1, 5, 'a', 'seal', 'ZF001', '{"epoch": 1, "token": 6, "holder": "b"}');
		update fence.setting set history_keep = '1 hour', history_keep_entries = 1;
		alter table fence.history enable always trigger protect_kept_history; select fence.prune_by_policy('sku/42', 5)`))
	for _, command := range []string{"tokens history NAME", "locks queue NAME", "locks evict NAME --expected-token 1 --reason x",
		"history prune --keep 1h --resource NAME", "history hold NAME --reason x", "history release NAME"} {
		run := func(name string) clitest.Ending {
			return fencectl(t, append(strings.Fields(strings.Replace(command, "NAME", name, 1)), "--database-url", dsn)...)
		}
		got := run("sku/43")
		require.Equal(t, cli.ExitInconclusive, got.Code, "%s: %s", command, got.Stderr)
		require.True(t, strings.HasPrefix(got.Stderr, "fencectl: no resource"), got.Stderr)
		require.Contains(t, got.Stderr, `"sku/43" in schema fence; beside it are sku/42, sku/7`)
		for _, known := range []string{"locked", "rejected", "held", "sku/42"} {
			require.NotContains(t, run(known).Stderr, "no resource", command)
		}
	}
	got := fencectl(t, "tokens", "history", "skus/*", "--database-url", dsn)
	require.Equal(t, ended(cli.ExitInconclusive, "", `fencectl: no resource matches "skus/*" in schema fence; beside it are sku/42, sku/7`+"\n"), got)
	require.Equal(t, ended(cli.ExitInconclusive, "", `fencectl: no resource "x" in schema fence`+"\n"), fencectl(t, "tokens", "history", "x", "--database-url", migrated(t)))
}

// summaries returns kind and position of each JSON line.
func summaries(t *testing.T, lines string) (all []string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var row historyRow
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		text := row.Kind
		if row.Position != 0 {
			text += fmt.Sprint(" ", row.Position)
		}
		all = append(all, text)
	}
	return all
}

func TestTokensHistory_IsWholeAsJSONAndLimitedAsATable(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	run := func(args ...string) clitest.Ending {
		t.Helper()
		got := fencectl(t, append([]string{"tokens", "history", "--database-url", dsn, "sku/*"}, args...)...)
		require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
		return got
	}
	var whole []historyRow
	for line := range strings.Lines(run("-o", "json").Stdout) {
		var row historyRow
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		whole = append(whole, row)
	}
	require.Len(t, whole, 7)
	require.Equal(t, &rejected{Reason: storage.ReasonStale, Stage: whole[3].Rejected.Stage, Count: 2, Last: time.Date(2026, 3, 3, 10, 5, 30, 0, time.UTC),
		Epoch: 1, Token: 131, Holder: "worker-b/8899aabbccddeeff", Claimed: whole[3].Rejected.Claimed}, whole[3].Rejected)
	require.Equal(t, []storage.OpRecord{{ID: "order-1", Name: "sell", Attrs: map[string]string{"qty": "2"}}, {ID: "order-2"}}, whole[1].Ops)
	require.Equal(t, []string{"sku/42", "sku/7"}, []string{whole[0].Resource, whole[6].Resource}, "in the order of the names")

	for n, says := range map[int]string{3: "there are more rows: raise --limit, or take -o json\n", 7: ""} {
		var table strings.Builder
		require.NoError(t, cli.WriteTable(&table, whole[:n]))
		require.Equal(t, ended(cli.ExitOK, table.String(), says), run("--limit", fmt.Sprint(n)))
	}
}

// An application role may record names and operations that no guarded transaction has. They forge no line, and keep
// nothing else from being read.
func TestTokensHistory_ShowsWhatIsMalformedAsItIs(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	require.NoError(t, execute(t, connect(t, dsn), `
		select fence.record_one(E'sku/0\n1  claim', 1, 5, E'\x1b[2J', 'seal', 'ZF001', '{"epoch": 1, "token": 6, "holder": "a\nb"}');
		do $$
		declare
		    r     fence.resource;
		    v_xid xid8 := pg_current_xact_id();
		begin
		    select * into r from fence.resource where name = 'sku/7';
		    perform fence.seal(array[r.id], array[r.epoch], array[r.token], array[encode(r.holder::text::bytea, 'hex')], array[r.seq], array[r.tx], 1, array[encode('[{"id": "\\u0000"}, 1]', 'hex')], v_xid);
		end $$`))
	got := fencectl(t, "tokens", "history", "*", "--database-url", dsn)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	lines := strings.Split(got.Stdout, "\n")
	require.Len(t, lines, 11, got.Stdout)
	require.Contains(t, lines[1], `sku/0\n1  claim  -         rejection  `)
	require.Contains(t, lines[1], `\x1b[2J: stale, by a\nb (token 6)`)
	require.Contains(t, got.Stdout, `malformed=[{"id": "\u0000"}, 1]`)
	got = fencectl(t, "tokens", "history", "*", "--op-name", "sell", "--database-url", dsn)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Equal(t, 3, strings.Count(got.Stdout, "\n"), got.Stdout)
}

func TestTokensHistory_ShowsTheLastRows(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	shown := func(args ...string) (rows []string) {
		t.Helper()
		got := fencectl(t, append([]string{"tokens", "history", "--database-url", dsn, "-o", "json"}, args...)...)
		require.Equal(t, ended(cli.ExitOK, got.Stdout, ""), got)
		for line := range strings.Lines(got.Stdout) {
			var row struct {
				Resource, Kind string
				Position       int64
			}
			require.NoError(t, json.Unmarshal([]byte(line), &row))
			rows = append(rows, fmt.Sprint(row.Resource, " ", row.Kind, " ", row.Position))
		}
		return rows
	}
	last := []string{"sku/42 void 5", "sku/42 write 4", "sku/42 rejection 0", "sku/42 claim 3", "sku/42 write 2", "sku/42 claim 1"}
	for n := range last {
		require.Equal(t, last[:n+1], shown("sku/42", "--last", fmt.Sprint(n+1)))
	}
	require.Equal(t, last, shown("sku/42", "--last", "100"))
	require.Equal(t, last[3:5], shown("sku/42", "--last", "2", "--until", "2026-03-03 10:03:20"))
	require.Equal(t, []string{"sku/42 claim 3", "sku/42 claim 1"}, shown("sku/42", "--last", "2", "--kind", "claim"))
	require.Equal(t, []string{"sku/42 claim 1", "sku/7 claim 1"}, shown("*", "--last", "100")[5:], "by time, whatever the resource")
	for _, args := range [][]string{{"--last", "0"}, {"--last", "-1"}, {"--last", "1", "--limit", "1"}} {
		require.Equal(t, cli.ExitUsage, fencectl(t, append([]string{"tokens", "history", "sku/42", "--database-url", dsn}, args...)...).Code, args)
	}
}

var noon = time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)

func entryAt(resource string, position int64, minute int) audit.Entry {
	return audit.Entry{Entry: storage.Entry{
		Grant: fence.Grant{Resource: resource}, Position: storage.Position{Seq: position}, Kind: storage.KindWrite, At: noon.Add(time.Duration(minute) * time.Minute),
	}}
}

func rejectionAt(resource string, id int64, minute int) audit.Rejection {
	return audit.Rejection{ID: id, Rejection: storage.Rejection{Grant: fence.Grant{Resource: resource}, First: noon.Add(time.Duration(minute) * time.Minute)}}
}

func sequence[T any](items ...T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// Rejections stand among the entries of their resource by time, also where the other sequence has
// nothing of the resource; entries stay in the order of their positions, whatever the clock did.
func TestMerge_PutsRejectionsAmongEntries(t *testing.T) {
	t.Parallel()
	entries := []audit.Entry{entryAt("b", 1, 0), entryAt("b", 2, 9), entryAt("b", 3, 5), entryAt("d", 1, 1)}
	rejections := []audit.Rejection{rejectionAt("a", 1, 50), rejectionAt("b", 7, 1), rejectionAt("b", 8, 7), rejectionAt("b", 9, 9), rejectionAt("c", 3, 0), rejectionAt("e", 2, 0)}
	var merged []string // positions of entries, and minutes of rejections
	for row, err := range merge(sequence(entries...), sequence(rejections...)) {
		require.NoError(t, err)
		if row.Rejected != nil {
			merged = append(merged, fmt.Sprintf("%s@%d", row.Resource, int(row.At.Sub(noon).Minutes())))
		} else {
			merged = append(merged, fmt.Sprint(row.Resource, " ", row.Position))
		}
	}
	require.Equal(t, []string{"a@50", "b 1", "b@1", "b@7", "b 2", "b 3", "b@9", "c@0", "d 1", "e@0"}, merged)
}
