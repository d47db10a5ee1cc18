package fencectl

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/epoch"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// epochOf is an etcd's prefix and databases that belong together.
type epochOf struct {
	t      *testing.T
	client *clientv3.Client
	prefix string
	flags  []string
	dsns   []string
}

func newEpochOf(t *testing.T, databases int) *epochOf {
	prefix, flags := onEtcd(t)
	e := &epochOf{t: t, client: etcdserver.Client(t), prefix: prefix, flags: flags}
	for range databases {
		e.dsns = append(e.dsns, migrated(t))
		e.flags = append(e.flags, "--database-url", e.dsns[len(e.dsns)-1])
	}
	return e
}

func (e *epochOf) run(args ...string) clitest.Ending {
	e.t.Helper()
	return fencectl(e.t, append(append([]string{"epoch"}, args...), e.flags...)...)
}

// show requires an exit code and returns the rows, etcd's first.
func (e *epochOf) show(code int) []epochRow { return e.rows(code, e.run("show", "-o", "json")) }

// bump requires an exit code and returns the rows that are there after it.
func (e *epochOf) bump(code int, args ...string) []epochRow {
	e.t.Helper()
	return e.rows(code, e.run(append([]string{"bump", "--reason", "etcd was restored", "-o", "json"}, args...)...))
}

func (e *epochOf) rows(code int, got clitest.Ending) (rows []epochRow) {
	e.t.Helper()
	require.Equal(e.t, code, got.Code, got.Stderr)
	if got.Stdout != "" {
		require.NoError(e.t, json.Unmarshal([]byte(got.Stdout), &rows))
	}
	return rows
}

func (e *epochOf) pool(i int) *pgxpool.Pool {
	e.t.Helper()
	pool, err := pgxpool.New(e.t.Context(), e.dsns[i])
	require.NoError(e.t, err)
	e.t.Cleanup(pool.Close)
	return pool
}

// raise is another bump, as far as a database goes.
func (e *epochOf) raise(i int, number int64) {
	e.t.Helper()
	to := epoch.Raise{Epoch: number, Reason: "another", Operator: "me"}
	raised, err := to.Apply(e.t.Context(), e.pool(i), postgres.DefaultSchema, false)
	require.NoError(e.t, err)
	require.True(e.t, raised)
}

func numbers(rows []epochRow) (all []int64) {
	for _, r := range rows {
		all = append(all, r.Epoch)
	}
	return all
}

func drifts(rows []epochRow) (all []epoch.Drift) {
	for _, r := range rows {
		all = append(all, r.Drift)
	}
	return all
}

func TestEpochBump_RaisesTheDatabasesAndEtcd(t *testing.T) {
	t.Parallel()
	e := newEpochOf(t, 2)
	fresh := e.show(cli.ExitOK)
	require.Equal(t, []int64{1, 1, 1}, numbers(fresh))
	require.True(t, fresh[0].NoKey)
	require.NotEmpty(t, fresh[0].ClusterID)
	e.raise(1, 5)
	require.Equal(t, []epoch.Drift{"", "", epoch.Behind}, drifts(e.show(cli.ExitViolated)))

	dry := e.run("bump", "--reason", "x", "--dry-run")
	require.Equal(t, cli.ExitOK, dry.Code, dry.Stderr)
	require.Contains(t, dry.Stderr, "would set the epoch to 6 everywhere")
	require.Contains(t, dry.Stderr, "nothing was written")
	require.Equal(t, []int64{1, 1, 5}, numbers(e.show(cli.ExitViolated)))

	rows := e.bump(cli.ExitOK)
	require.Equal(t, []int64{6, 6, 6}, numbers(rows))
	require.Equal(t, []epoch.Drift{"", "", ""}, drifts(rows))
	require.False(t, rows[0].NoKey)
	for _, r := range rows[1:] {
		require.Equal(t, "etcd was restored", r.Reason)
		require.Equal(t, operator(), r.By)
		require.NotNil(t, r.RaisedAt)
	}
	require.Equal(t, []int64{7, 7, 7}, numbers(e.bump(cli.ExitOK)))
	table := e.run("show").Stdout
	require.Regexp(t, `(?m)^WHERE +EPOCH +HIGHEST TOKEN +RAISED +BY +REASON +DRIFT$`, table)
	require.Regexp(t, `(?m)^etcd `+e.prefix+`/epoch in cluster [0-9a-f]+ +7 +\d+ +- +- +- +-$`, table)
}

// Nothing is written unless everything can be.
func TestEpochBump_WritesNothingIfItCantWriteAll(t *testing.T) {
	t.Parallel()
	e := newEpochOf(t, 2)
	away := append(e.flags, "--database-url", "postgres://127.0.0.1:1/none")
	readOnly := with(t, migrated(t), "default_transaction_read_only", "on")
	role := strings.ToLower(e.prefix) + "-reader"
	dsn := migrated(t)
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "up", "--database-url", dsn, "--reader-role", role).Code)
	conn := connect(t, dsn)
	t.Cleanup(func() {
		_ = execute(t, conn, "reset role; drop owned by "+pgx.Identifier{role}.Sanitize()+"; drop role "+pgx.Identifier{role}.Sanitize())
	})
	reader := with(t, dsn, "options", "-crole="+role)
	for _, c := range []struct {
		flags []string
		says  []string
	}{
		{away, []string{"database 127.0.0.1:1/none: ", "Check that Postgres runs", "Nothing was written"}},
		{append(e.flags, "--database-url", reader), []string{"42501", "Nothing was written"}},
		{append(e.flags[2:], "--etcd-endpoints", "http://127.0.0.1:1"), []string{"Check that etcd runs", "Nothing was written"}},
		{append(e.flags, "--schema", "none"), []string{"The schema is missing", "Nothing was written"}},
	} {
		got := fencectl(t, append([]string{"epoch", "bump", "--reason", "x"}, c.flags...)...)
		require.Equal(t, cli.ExitNotReady, got.Code, got.Stderr)
		for _, text := range c.says {
			require.Contains(t, got.Stderr, text)
		}
	}
	require.Equal(t, cli.ExitOK, fencectl(t, append([]string{"epoch", "show", "--database-url", reader}, e.flags...)...).Code)
	require.Equal(t, []int64{1, 1, 1}, numbers(e.show(cli.ExitOK)))
	// Here the transaction says that it writes.
	require.Equal(t, cli.ExitOK, fencectl(t, append([]string{"epoch", "bump", "--reason", "x", "--database-url", readOnly}, e.flags...)...).Code)
}

// etcd's user may read the epoch and not put it: that is found before the databases are raised.
func TestEpochBump_LooksAtTheRightsInEtcdFirst(t *testing.T) {
	t.Parallel()
	server := startEtcdWithUsers(t, map[string]etcdRight{"app": {"fencekit/epoch", clientv3.PermissionType(clientv3.PermRead)}})
	password := []string{etcdPasswordVariable + "=s3cret"}
	flags := []string{"--etcd-endpoints", server.Endpoint(), "--etcd-user", "app", "--database-url", migrated(t)}
	got := fencectlProcess(t, password, append([]string{"epoch", "bump", "--reason", "x"}, flags...)...)
	require.Equal(t, cli.ExitNotReady, got.Code)
	require.Contains(t, got.Stderr, "needs readwrite on the key fencekit/epoch")
	require.Contains(t, got.Stderr, "Nothing was written")
	require.Equal(t, cli.ExitOK, fencectlProcess(t, password, append([]string{"epoch", "show"}, flags...)...).Code)
}

// A bump that has written to one database, and fails at the next, leaves no epoch in etcd
// that a database has not recorded, and is completed by another.
func TestEpochBump_IsResumedByRunningItAgain(t *testing.T) {
	t.Parallel()
	e := newEpochOf(t, 2)
	conn := connect(t, e.dsns[1])
	refuse := "create constraint trigger refuse after insert on fence.epoch_raise deferrable initially deferred for each row execute function fence.protect_history()"
	require.NoError(t, execute(t, conn, refuse))
	got := e.run("bump", "--reason", "x")
	require.Equal(t, cli.ExitNotReady, got.Code)
	require.Regexp(t, `(?s)database .*ZF009.*The epoch is 2 in database .*run the same command again\. Until then claims in these databases are rejected`, got.Stderr)
	rows := e.show(cli.ExitViolated)
	require.Equal(t, []int64{1, 2, 1}, numbers(rows), "etcd comes last")
	require.Equal(t, epoch.Behind, rows[1].Drift)
	require.NoError(t, execute(t, conn, "drop trigger refuse on fence.epoch_raise"))
	require.Equal(t, []int64{3, 3, 3}, numbers(e.bump(cli.ExitOK)))
}

// All prefixes that use a database get the same epoch: one that is behind the database's is of
// no use.
func TestEpochBump_OfSeveralPrefixes(t *testing.T) {
	t.Parallel()
	e := newEpochOf(t, 1)
	e.bump(cli.ExitOK)
	e.flags = append(e.flags, "--etcd-prefix", e.prefix+"-2")
	require.Equal(t, []epoch.Drift{"", "", epoch.Behind}, drifts(e.show(cli.ExitViolated)))
	require.Equal(t, []int64{3, 3, 3}, numbers(e.bump(cli.ExitOK)))
}

// Another bump has raised a database to the same epoch since it was read: etcd's is left as it is.
func TestEpochBump_StopsIfAnotherWasFaster(t *testing.T) {
	t.Parallel()
	e := newEpochOf(t, 1)
	b := &epochBump{epochFlags: &epochFlags{databases: databasesFlags{databaseFlags: databaseFlags{timeout: time.Minute, schema: "fence"}, urls: e.dsns, names: e.dsns}}}
	s, err := b.read(t.Context())
	require.NoError(t, err)
	e.raise(0, 2)
	require.ErrorIs(t, b.write(t.Context(), s, epoch.Raise{Epoch: 2, Reason: "x", Operator: "me"}, false), errChanged)
}

// Two URLs lead to one database: it is raised once.
func TestEpochBump_OfOneDatabaseUnderTwoNames(t *testing.T) {
	t.Parallel()
	e := newEpochOf(t, 1)
	u, err := url.Parse(e.dsns[0])
	require.NoError(t, err)
	u.Host = "localhost:" + u.Port()
	e.flags = append(e.flags, "--database-url", u.String())
	require.Equal(t, []int64{2, 2, 2}, numbers(e.bump(cli.ExitOK)))
	var raises int
	require.NoError(t, e.pool(0).QueryRow(t.Context(), "select count(*) from fence.epoch_raise").Scan(&raises))
	require.Equal(t, 1, raises)
}

// Open is not called: nothing of the epoch is there.
func TestEpoch_BumpSaysWhatToSetForALockServiceWithoutOne(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	bump := func(at string) clitest.Ending {
		return clitest.Run(t, newRoot(LockService{URL: "redis://HOST:PORT"}), "epoch", "bump", "--reason", "x", "--locks", at, "--database-url", dsn)
	}
	got := bump("redis://127.0.0.1:1")
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stderr, "the epoch is 2; no etcd was asked, since the locks are not there; set the Locker's Config.Epoch to it in every process\n")
	require.Equal(t, cli.ExitUsage, bump("redis").Code)
}
