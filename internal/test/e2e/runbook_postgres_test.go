package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// lossy is a database under load that is going to lose its newest writes.
type lossy struct {
	*load
	*runbook
	t *testing.T
}

// newLossy puts load on a database, which dsn leads to.
func newLossy(t *testing.T, dsn string) *lossy {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	endpoint := etcdserver.Shared(t).Endpoint()
	l := &lossy{t: t, runbook: newRunbook(t, endpoint, dsn), load: startLoad(t, endpoint, dsn, pool)}
	for range 3 { // until it keeps its lease
		require.NoError(t, l.witnesses())
	}
	l.requireProgress()
	return l
}

// lossyServer is a server whose data can be put back, and a database with tables on it.
func lossyServer(t *testing.T, settings map[string]string) (server *pgserver.Server, dsn string) {
	t.Helper()
	server, err := pgserver.Start(t.Context(), &pgserver.Config{Local: true, Settings: settings})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	dsn, err = server.CreateDatabase(t.Context(), "e2e")
	require.NoError(t, err)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	_, err = postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "create table counter (key text primary key, value bigint not null); create table ballast (s text); insert into counter values ('a', 0), ('b', 0)")
	require.NoError(t, err)
	return server, dsn
}

// loseFromHere has operations acknowledged, and anchored, that are going to be lost.
func (l *lossy) loseFromHere() {
	l.t.Helper()
	l.witness.pool.Reset()
	require.NoError(l.t, l.witnesses())
	l.requireProgress()
	l.run(0, "fencectl audit anchor")
}

// requireNamed requires that a holder who wrote what is gone learns it once for each of the reasons,
// which the guide names, and that all processes go on by themselves.
func (l *lossy) requireNamed(reasons ...storage.Reason) {
	l.t.Helper()
	l.witness.pool.Reset()
	for _, reason := range reasons {
		err := l.witnesses()
		require.ErrorIs(l.t, err, guard.ErrFailedOver)
		requireRejected(l.t, err, reason)
		l.names(string(reason))
	}
	require.NoError(l.t, l.witnesses())
	l.requireProgress()
}

// followFrom follows the last commands of a section, and those that find what is gone.
func (l *lossy) followFrom() {
	l.t.Helper()
	l.pool.Reset()
	l.run(0, "fencectl epoch show")
	l.open("What was lost")
	l.writeFile("acknowledged", l.said())
	l.run(0, "psql ")
	l.run(0, "LC_ALL=C sort")
	require.Contains(l.t, l.run(1, "fencectl audit verify --log"), "witness", "the anchors name the resource")
	l.run(0, "fencectl audit verify")
	l.run(0, "fencectl audit keygen")
	l.run(0, "fencectl audit anchor")
	l.done()
	l.requireProgress()
	require.NoError(l.t, l.witnesses())
	l.checkLost(l.lines("lost"))
}

func TestRunbook_PostgresVolumeRestored(t *testing.T) {
	t.Parallel()
	server, dsn := lossyServer(t, nil)
	l := newLossy(t, dsn)
	volume, err := server.CopyData(t.Context())
	require.NoError(t, err)
	l.loseFromHere()
	l.open("Postgres volume restored")
	require.NoError(t, server.PutBack(t.Context(), volume))
	l.requireNamed(storage.ReasonWentBack)
	l.followFrom()
}

func TestRunbook_PostgresRestoredFromADump(t *testing.T) {
	t.Parallel()
	_, dsn := lossyServer(t, nil)
	l := newLossy(t, dsn)
	out, err := exec.Command("pg_dump", "--format=custom", "--file="+filepath.Join(l.dir, "shop.dump"), dsn).CombinedOutput()
	require.NoError(t, err, "%s", out)
	l.loseFromHere()
	l.open("Postgres restored from a dump")
	l.stopped.Lock()
	l.run(0, "pg_restore --clean")
	l.run(0, "fencectl migrate status")
	l.stopped.Unlock()
	l.requireNamed(storage.ReasonWentBack)
	l.followFrom()
}

func TestRunbook_PostgresRecoveredToAPointInTime(t *testing.T) {
	t.Parallel()
	server, dsn := lossyServer(t, map[string]string{"archive_mode": "on"})
	require.NoError(t, server.Archive(t.Context()))
	base, err := server.BaseBackup(t.Context())
	require.NoError(t, err)
	l := newLossy(t, dsn)
	_, err = l.pool.Exec(t.Context(), "select pg_create_restore_point('before the mistake')")
	require.NoError(t, err)
	l.loseFromHere()
	l.open("Postgres recovered to a point in time")
	require.NoError(t, server.RecoverTo(t.Context(), base, "recovery_target_name = 'before the mistake'\nrecovery_target_action = 'promote'"))
	l.requireNamed(storage.ReasonFailedOver, storage.ReasonWentBack)
	l.followFrom()
}

func TestRunbook_FailoverToAnAsynchronousStandby(t *testing.T) {
	t.Parallel()
	primary, dsn := lossyServer(t, nil)
	standby, err := pgserver.StartStandby(t.Context(), primary, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop(context.Background())) })
	l := newLossy(t, strings.Replace(dsn, "/e2e?", fmt.Sprintf(",127.0.0.1:%d/e2e?target_session_attrs=read-write&", standby.Port(0)), 1))
	var lsn string
	require.NoError(t, l.pool.QueryRow(t.Context(), "select pg_current_wal_lsn()").Scan(&lsn))
	require.Eventually(t, func() bool {
		var received bool // the witness's claim
		return l.pool.QueryRow(t.Context(), "select flush_lsn >= $1::text::pg_lsn from pg_stat_replication", lsn).Scan(&received) == nil && received
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, standby.StopStreaming(t.Context()))
	l.loseFromHere()
	l.open("Failover to an asynchronous standby")
	require.NoError(t, primary.Kill())
	l.setenv("STANDBY_URL", standby.DSN())
	l.run(0, "psql \"$STANDBY_URL\"")
	l.requireNamed(storage.ReasonFailedOver, storage.ReasonWentBack)
	l.followFrom()
}
