package testenv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// shared is a server that the tests of this binary use together: started on
// first use, stopped by Main.
type shared[S interface{ Stop(context.Context) error }] struct {
	mu      sync.Mutex
	started bool
	server  S
	err     error
	start   func(context.Context) (S, error)
}

var (
	sharedEtcd = shared[*Etcd]{start: func(ctx context.Context) (*Etcd, error) {
		return StartEtcd(ctx, nil)
	}}
	sharedPostgres = shared[*Postgres]{start: func(ctx context.Context) (*Postgres, error) {
		return StartPostgres(ctx, &PostgresConfig{Settings: unsynced})
	}}
)

// unsynced are the settings of a server that no test crashes: otherwise making and
// dropping databases mostly waits for the disk. No database lives long enough to need
// a vacuum, whose locks would be in the way of tests that look at locks.
var unsynced = map[string]string{"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}

// get starts the server if no test has; a failed start isn't tried again.
func (s *shared[S]) get() (S, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
		defer cancel()
		s.server, s.err = s.start(ctx)
	}
	return s.server, s.err
}

// stop stops the server if it was started and is ours.
func (s *shared[S]) stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started || s.err != nil {
		return nil
	}
	if err := s.server.Stop(ctx); !errors.Is(err, ErrNotOurs) {
		return err
	}
	return nil
}

// SharedEtcd returns the etcd that the tests of this binary share. A test that
// kills, pauses or restarts it disturbs the others: StartEtcd is for that. The
// test fails if it can't be started.
func SharedEtcd(t testing.TB) *Etcd {
	t.Helper()
	e, err := sharedEtcd.get()
	require.NoError(t, err)
	return e
}

// EtcdClient returns a fresh client to the shared etcd; it is closed when the
// test ends.
func EtcdClient(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := SharedEtcd(t).Client(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// SharedPostgres returns the Postgres that the tests of this binary share. A
// test that kills, pauses or restarts it disturbs the others: StartPostgres is
// for that. The test fails if none is found, with what to install.
func SharedPostgres(t testing.TB) *Postgres {
	t.Helper()
	p, err := sharedPostgres.get()
	require.NoError(t, err)
	return p
}

// Database makes a fresh database on the shared Postgres and returns its DSN.
// It is dropped when the test passes; when the test fails it is kept, while
// the server lives, and named in the log.
func Database(t testing.TB) (dsn string) {
	t.Helper()
	return database(t, "")
}

// database makes a copy of a template, or an empty database.
func database(t testing.TB, template string) (dsn string) {
	t.Helper()
	p := SharedPostgres(t)
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	defer cancel()
	name := databaseName(t.Name())
	dsn, err := p.createDatabase(ctx, name, template)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("testenv: database kept: %s", dsn)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
		defer cancel()
		require.NoError(t, p.DropDatabase(ctx, name))
	})
	return dsn
}

// databaseName is a test's name as an identifier, cut to what Postgres takes,
// with a random end: a server that is not ours may keep older ones.
func databaseName(test string) string {
	word := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(test))
	return fmt.Sprintf("%.46s_%016x", word, rand.Uint64())
}
