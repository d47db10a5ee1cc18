// Package adopt shows what goes wrong with home-made forms, that the converted ones are right, and the way from one to
// the other and back: docs/adopt.md.
package adopt

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/examples/adopt/after"
	"github.com/fencekit/fencekit/examples/adopt/before"
	"github.com/fencekit/fencekit/examples/adopt/beside"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/pglock/inspect"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Each diff of the guide goes from one file to the other.
func TestAdopt_TheDiffsAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/adopt.md")
	require.NoError(t, err)
	diffs := regexp.MustCompile("(?s)```diff\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, diffs, 2)
	for d, from := range []struct{ file, line string }{{"leader.go", "// Leader is"}, {"worker.go", "// Job is"}} {
		var files [2]strings.Builder
		var changed int
		for line := range strings.Lines(diffs[d][1]) {
			if line[0] != '+' {
				files[0].WriteString(line[min(1, len(line)-1):])
			}
			if line[0] != '-' {
				files[1].WriteString(line[min(1, len(line)-1):])
			}
			if line[0] == '+' {
				changed++
			}
		}
		for i, form := range []string{"before", "after"} {
			code, err := os.ReadFile(form + "/" + from.file)
			require.NoError(t, err)
			_, body, _ := strings.Cut(string(code), from.line)
			require.Equal(t, from.line+body, files[i].String(), form)
		}
		require.Less(t, changed, 25)
	}
}

type leader interface {
	Lead(ctx context.Context) error
	Write(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error
	Resign(ctx context.Context) error
}

const name = "scheduler"

// world is a database in which the leader dispatches slots, each once.
type world struct {
	*testing.T
	pool *pgxpool.Pool
}

func newWorld(t *testing.T) world {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgserver.Database(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)
	w := world{t, pool}
	w.exec(before.Table)
	w.exec(before.Jobs)
	w.exec("create table dispatched (slot int not null); create table result (job_id bigint not null, value text not null)")
	return w
}

func (w world) exec(sql string, args ...any) {
	w.Helper()
	_, err := w.pool.Exec(w.Context(), sql, args...)
	require.NoError(w, err)
}

func (w world) number(sql string) (n int) {
	w.Helper()
	require.NoError(w, w.pool.QueryRow(w.Context(), sql).Scan(&n))
	return n
}

func (w world) old(holder string) leader {
	return &before.Leader{Pool: w.pool, Name: name, Holder: holder, TTL: time.Hour}
}

// new has a lock service of its own, as each process. Its transactions are as strict as those of old.
func (w world) new(string) leader {
	g, err := fencekit.New(w.pool, &fencekit.Config{Store: postgres.Config{Isolation: pgx.RepeatableRead}})
	require.NoError(w, err)
	w.Cleanup(func() { _ = g.Close(context.Background()) })
	return &after.Leader{Guard: g, Name: name}
}

func (w world) both() *beside.Leader {
	return &beside.Leader{After: *w.new("").(*after.Leader), Row: before.Leader{Pool: w.pool, Name: name, TTL: time.Hour}}
}

// stopped returns l as the process sees it, also later on, that SIGSTOP has stopped now.
func stopped(l leader) leader {
	switch l := l.(type) {
	case *before.Leader:
		return new(*l)
	case *after.Leader:
		return &after.Leader{Guard: l.Guard, Name: l.Name, Lease: unaware{l.Lease}}
	}
	panic("neither form")
}

// unaware is a lease whose loss the process has not noticed.
type unaware struct{ fence.Lease }

func (unaware) Err() error               { return nil }
func (unaware) Context() context.Context { return context.Background() }

// expire lets the lease of l run out.
func (w world) expire(l leader) {
	w.Helper()
	w.exec("update leader_lease set expires_at = now() - interval '1 second'")
	if l, ok := l.(*after.Leader); ok {
		_, err := inspect.New(w.pool, "fence").Evict(w.Context(), name, l.Lease.Grant().Token, "as if it had run out", "test")
		require.NoError(w, err)
	}
}

func (w world) leads(l leader) {
	w.Helper()
	require.NoError(w, l.Lead(w.Context()))
}

func dispatch(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "insert into dispatched values (7)")
	return err
}

func (w world) writes(l leader) {
	w.Helper()
	require.NoError(w, l.Write(w.Context(), dispatch))
}

// Each bug is a schedule. It returns what became of the last write, that of a process which was stopped while it led.
var bugs = map[string]func(w world, start func(holder string) leader) error{
	"the same epoch after acquiring anew": func(w world, start func(string) leader) error {
		a := start("worker-0")
		w.leads(a)
		late := stopped(a)
		w.expire(a)
		a = start("worker-0") // restarted
		w.leads(a)
		w.writes(a)
		return late.Write(w.Context(), dispatch)
	},
	"the fence reset at resign": func(w world, start func(string) leader) error {
		a, b, c := start("worker-0"), start("worker-1"), start("worker-2")
		w.leads(a)
		late := stopped(a)
		w.expire(a)
		w.leads(b)
		require.NoError(w, b.Resign(w.Context()))
		w.leads(c)
		w.writes(c)
		return late.Write(w.Context(), dispatch)
	},
	"a snapshot that admits the old leader": func(w world, start func(string) leader) error {
		a, b := start("worker-0"), start("worker-1")
		w.leads(a)
		return stopped(a).Write(w.Context(), func(ctx context.Context, tx pgx.Tx) error {
			var n int
			if err := tx.QueryRow(ctx, "select count(*) from dispatched where slot = 7").Scan(&n); err != nil || n > 0 {
				return errors.Join(err, errors.New("dispatched"))
			}
			w.expire(a) // while it is stopped here
			w.leads(b)
			w.writes(b)
			return dispatch(ctx, tx)
		})
	},
	"a worker's stable name in place of a token": func(w world, start func(string) leader) error {
		a := start("worker-0")
		w.leads(a)
		late := stopped(a)
		replacement := start("worker-0") // for the node of the other one doesn't answer
		if err := replacement.Lead(w.Context()); err != nil {
			require.ErrorIs(w, err, after.ErrNotLeader)
			w.expire(a)
			w.leads(replacement)
		}
		w.writes(replacement)
		return late.Write(w.Context(), dispatch)
	},
}

func TestAdopt_TheHomeMadeLeaderDispatchesTwice(t *testing.T) {
	for bug, schedule := range bugs {
		t.Run(bug, func(t *testing.T) {
			w := newWorld(t)
			require.NoError(t, schedule(w, w.old))
			require.Equal(t, 2, w.number("select count(*) from dispatched"))
		})
	}
}

func TestAdopt_TheConvertedLeaderDispatchesOnce(t *testing.T) {
	for bug, schedule := range bugs {
		t.Run(bug, func(t *testing.T) {
			w := newWorld(t)
			require.ErrorIs(t, schedule(w, w.new), guard.ErrStaleToken)
			require.Equal(t, 1, w.number("select count(*) from dispatched"))
		})
	}
}

func (w world) protect(table, resource string, mode postgres.ProtectMode) {
	w.Helper()
	_, err := postgres.Protect(w.Context(), w.pool, "", postgres.Protection{Table: table, ResourceExpr: resource, Mode: mode})
	require.NoError(w, err)
}

// While processes of both forms run, those that lead in both ways exclude either, and the protected table tells who
// writes around the fence.
func TestAdopt_OldAndNewExcludeEachOther(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.protect("dispatched", "'"+name+"'", postgres.ProtectAudit)
	around := func() int { return w.number("select count(*) from fence.unguarded_write") }

	old, both, other := w.old("worker-0"), w.both(), w.both()
	w.leads(old)
	require.ErrorIs(t, both.Lead(ctx), before.ErrNotLeader)
	require.ErrorIs(t, both.Write(ctx, dispatch), before.ErrNotLeader)
	w.writes(old)
	require.Equal(t, 1, around())

	w.expire(old)
	w.leads(both)
	w.leads(both) // renews
	require.ErrorIs(t, old.Lead(ctx), before.ErrNotLeader)
	require.ErrorIs(t, old.Write(ctx, dispatch), before.ErrNotLeader)
	require.ErrorIs(t, other.Lead(ctx), after.ErrNotLeader)
	require.ErrorIs(t, w.new("").Lead(ctx), after.ErrNotLeader, "nor one of the last step")
	require.NoError(t, both.Write(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := w.pool.Exec(ctx, "select from leader_lease for no key update nowait")
		require.ErrorContains(t, err, "55P03", "no old process takes the row before COMMIT")
		return dispatch(ctx, tx)
	}))
	require.Equal(t, 1, around(), "the rejected one, and those of the new ones, are none")

	w.exec("update leader_lease set expires_at = now() - interval '1 second'") // it was stopped
	w.leads(old)
	require.ErrorIs(t, both.Write(ctx, dispatch), before.ErrNotLeader)
	require.ErrorIs(t, both.Lead(ctx), before.ErrNotLeader)
	epoch := w.number("select epoch from leader_lease")
	w.expire(old)
	w.leads(both)
	require.NoError(t, both.Resign(ctx))
	w.leads(old) // back
	require.Equal(t, epoch+2, w.number("select epoch from leader_lease"), "of each term one")
}

// Without that step both would lead. Once no old process is left, the table may reject what they write.
func TestAdopt_TheStepBetweenIsNeeded(t *testing.T) {
	w := newWorld(t)
	old, converted := w.old("worker-0"), w.new("")
	w.leads(old)
	w.leads(converted)
	w.writes(old)
	w.writes(converted)
	w.protect("dispatched", "'"+name+"'", postgres.ProtectEnforce)
	require.ErrorContains(t, old.Write(t.Context(), dispatch), "ZF015")
	w.writes(converted)
	w.protect("dispatched", "'"+name+"'", postgres.ProtectAudit) // before going back
	w.writes(old)
}
