package fencectl

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/doctor"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// installation is a database of a test's own and an etcd, with a service that uses them.
type installation struct {
	t             *testing.T
	etcd          *etcdserver.Server
	prefix        string // of the service's keys in etcd
	dsn           string
	reach         string // the service's DSN
	pool          *pgxpool.Pool
	client        *clientv3.Client
	guard         *guard.Guard[pgx.Tx]
	allowPrepared bool
	ignore        []string // flags of "doctor", besides those of the servers
	flags         []string // of "doctor"
	env           []string // for the commands of findings; those of fencectl repeat the flags
}

// onShared makes an installation on the shared Postgres, whose fsync is off, and on e, or the shared etcd
// if that is nil.
func onShared(t *testing.T, e *etcdserver.Server) *installation {
	t.Helper()
	if e == nil {
		e = etcdserver.Shared(t)
	}
	i := &installation{t: t, etcd: e, ignore: []string{"--ignore", "durability-off"}}
	i.set(pgserver.Database(t))
	return i
}

// onOwn makes an installation on the shared etcd and a Postgres of the test's own, whose data can be put
// back, and which can have a standby.
func onOwn(t *testing.T, settings map[string]string) (*installation, *pgserver.Server) {
	t.Helper()
	pg, err := pgserver.Start(t.Context(), &pgserver.Config{Local: true, Settings: settings})
	require.NoError(t, err)
	stopLater(t, pg)
	dsn, err := pg.CreateDatabase(t.Context(), "shop")
	require.NoError(t, err)
	i := &installation{t: t, etcd: etcdserver.Shared(t), allowPrepared: settings["max_prepared_transactions"] != ""}
	i.set(dsn)
	return i, pg
}

func stopLater(t *testing.T, s interface{ Stop(context.Context) error }) {
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
}

// set makes the schema and a service, which writes.
func (i *installation) set(dsn string) {
	i.t.Helper()
	i.prefix = "doctor-" + rand.Text()
	i.reach = dsn
	i.at(dsn)
	require.Equal(i.t, cli.ExitOK, fencectl(i.t, "migrate", "up", "--database-url", dsn).Code)
	i.connect()
	i.write("sku/1", "sku/2", "sku/3")
}

// at says where the database is from now on.
func (i *installation) at(dsn string) {
	i.dsn = dsn
	i.flags = append([]string{"--etcd-endpoints", i.etcd.Endpoint(), "--etcd-prefix", i.prefix, "--database-url", dsn}, i.ignore...)
	i.env = []string{"DATABASE_URL=" + dsn}
}

// connect makes a service with new connections.
func (i *installation) connect() {
	i.t.Helper()
	client, err := i.etcd.Client(i.t.Context())
	require.NoError(i.t, err)
	i.t.Cleanup(func() { _ = client.Close() })
	i.client = client
	i.pool, err = pgxpool.New(i.t.Context(), i.reach)
	require.NoError(i.t, err)
	i.t.Cleanup(i.pool.Close)
	store, err := postgres.NewStore(i.pool, &postgres.Config{AllowPreparedTransactions: i.allowPrepared})
	require.NoError(i.t, err)
	i.guard, err = guard.New(newLocker(i.t, i.client, etcd.Config{Prefix: i.prefix}), store, &guard.Config{KeepFor: -1})
	require.NoError(i.t, err)
}

// write writes under the lock of each resource.
func (i *installation) write(resources ...string) {
	i.t.Helper()
	for _, resource := range resources {
		require.NoError(i.t, i.try(resource))
	}
}

func (i *installation) try(resource string) error {
	return guard.Do(i.t.Context(), i.guard, resource, func(context.Context, pgx.Tx) error { return nil })
}

// sql runs statements one after another, as a superuser.
func (i *installation) sql(statements ...string) {
	i.t.Helper()
	conn, err := pgx.Connect(i.t.Context(), i.dsn)
	require.NoError(i.t, err)
	defer conn.Close(context.Background())
	for _, statement := range statements {
		_, err := conn.PgConn().Exec(i.t.Context(), statement).ReadAll()
		require.NoError(i.t, err, statement)
	}
}

// examine runs "doctor" and returns its findings.
func (i *installation) examine() (code int, found []doctor.Finding) {
	i.t.Helper()
	return examine(i.t, i.flags...)
}

func examine(t *testing.T, flags ...string) (code int, found []doctor.Finding) {
	t.Helper()
	got := fencectl(t, append([]string{"doctor", "-o", "json"}, flags...)...)
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &found), got.Stderr)
	return got.Code, found
}

// finds requires that doctor finds this and nothing else, and returns it.
func (i *installation) finds(code int, id string) doctor.Finding {
	i.t.Helper()
	got, found := i.examine()
	require.Equal(i.t, []string{id}, idsOf(found), "%+v", found)
	require.Equal(i.t, code, got)
	return found[0]
}

func idsOf(found []doctor.Finding) (ids []string) {
	for _, f := range found {
		ids = append(ids, f.ID)
	}
	return ids
}

// findsNothing requires that doctor is content.
func (i *installation) findsNothing() {
	i.t.Helper()
	code, found := i.examine()
	require.Empty(i.t, found)
	require.Equal(i.t, cli.ExitOK, code)
}

// verifies requires that "audit verify" is content as well.
func (i *installation) verifies() {
	i.t.Helper()
	got := fencectl(i.t, "audit", "verify", "--database-url", i.dsn)
	require.Equal(i.t, cli.ExitOK, got.Code, "%s%s", got.Stdout, got.Stderr)
}

// mend runs the commands of a finding, as they are printed.
func (i *installation) mend(f doctor.Finding) {
	i.t.Helper()
	require.NotEmpty(i.t, f.Run)
	for _, command := range f.Run {
		if strings.HasSuffix(command, ";") {
			i.sql(command)
		} else {
			i.shell(command)
		}
	}
}

// shell runs a command in which fencectl is this binary.
func (i *installation) shell(command string) {
	i.t.Helper()
	bin := i.t.TempDir()
	self, err := os.Executable()
	require.NoError(i.t, err)
	require.NoError(i.t, os.Symlink(self, filepath.Join(bin, "fencectl")))
	if strings.Contains(command, " etcdctl ") {
		require.NoError(i.t, os.Symlink(etcdserver.Etcdctl(i.t), filepath.Join(bin, "etcdctl")))
	}
	cmd := exec.CommandContext(i.t.Context(), "sh", "-c", command)
	cmd.Env = append(os.Environ(), "FENCEKIT_TEST_BE_COMMAND=1", "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, "ETCDCTL_ENDPOINTS=127.0.0.1:1", "ETCDCTL_USER=nobody") // an operator's own
	cmd.Env = append(cmd.Env, i.env...)
	out, err := cmd.CombinedOutput()
	require.NoError(i.t, err, "%s: %s", command, out)
}
