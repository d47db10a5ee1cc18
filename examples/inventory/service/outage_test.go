package service

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
)

// ownServers returns an etcd and a Postgres that a test may break, and the
// configuration of a server on them.
func ownServers(t *testing.T, etcdFlags ...string) (*etcdserver.Server, *pgserver.Server, Config) {
	t.Helper()
	ctx := patient(t)
	etcd, err := etcdserver.Start(ctx, &etcdserver.Config{ExtraFlags: etcdFlags})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, etcd.Stop(context.Background())) })
	pg, err := pgserver.Start(ctx, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pg.Stop(context.Background())) })
	dsn, err := pg.CreateDatabase(ctx, "inventory")
	require.NoError(t, err)
	cfg := config(t, dsn)
	cfg.Etcd = etcd.Endpoint()
	cfg.Stop = 5 * time.Second
	return etcd, pg, cfg
}

// requireAway requires an answer that says that the request may be sent again; which server
// is away, only the log says.
func requireAway(t *testing.T, answer reply, name string) {
	t.Helper()
	require.Equal(t, http.StatusServiceUnavailable, answer.status, answer.body)
	require.Equal(t, name, answer.problemName(t), answer.body)
	require.NotContains(t, answer.body, "etcd")
	require.NotContains(t, answer.body, "postgres")
	require.NotEmpty(t, answer.header.Get("Retry-After"))
}

func TestAPI_GivesEveryAnswer(t *testing.T) {
	t.Parallel()
	etcd, pg, cfg := ownServers(t)
	s := startService(t, cfg)
	deduct := func(key string) reply { return s.deduct(key, `{"qty":1}`) }

	require.Equal(t, http.StatusOK, s.get("/healthz").status)
	requireAway(t, s.get("/readyz"), "not-ready")
	pool := stock100(t, cfg.Postgres)
	require.Equal(t, http.StatusOK, s.get("/readyz").status)

	require.Equal(t, http.StatusOK, deduct("k").status)
	require.Equal(t, http.StatusConflict, s.deduct("all", `{"qty":1000}`).status)
	require.Equal(t, http.StatusUnprocessableEntity, s.deduct("k", `{"qty":2}`).status)
	_, err := pool.Exec(t.Context(), "alter table reservation rename column quantity to amount")
	require.NoError(t, err)
	broken := deduct("k-2")
	require.Equal(t, http.StatusInternalServerError, broken.status)
	require.NotContains(t, broken.body, "quantity", "details of the server's stay in its log")
	require.Contains(t, s.log.String(), `column r.quantity does not exist`)

	require.NoError(t, etcd.Kill())
	require.NoError(t, pg.Kill())
	requireAway(t, s.get("/readyz"), "not-ready")
	requireAway(t, deduct("k-2"), "unavailable")
	require.Equal(t, http.StatusOK, s.get("/healthz").status, "one outage must not have every server restarted")
	require.Contains(t, s.get("/metrics").body, "guard_writes_total", "an outage is when metrics are wanted")
}

// COMMIT was sent, and the database can't be asked what became of it: the server
// says so, and the same key finds out. Both ways: it had arrived, or it had not.
func TestOutage_UnknownOutcomeIs503AndTheKeyFindsOut(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]func() *pgproxy.Action{
		"applied": pgproxy.SwallowReply, "not applied": pgproxy.SwallowCommit,
	} {
		t.Run(name, func(t *testing.T) {
			dsn, pool := stocked(t)
			cfg := config(t, dsn)
			cfg.resolveTimeout = time.Second
			proxy := startProxy(t, &cfg)
			s := startService(t, cfg)
			deduct := func() reply { return s.deduct("k", `{"qty":2}`) }
			before := s.deduct("k-0", `{"qty":1}`).deduction(t)

			lose, lost := action(), false
			proxy.OnCommit(func(sql string) *pgproxy.Action {
				switch {
				case lost: // the outcome can't be asked for
					return pgproxy.SwallowCommit()
				case strings.Contains(sql, ".seal"):
					lost = true
					return lose
				}
				return nil
			})
			answer := deduct()
			requireAway(t, answer, "unknown-outcome")
			require.NoError(t, lose.Wait(patient(t)))
			require.Equal(t, map[bool]int{true: 2, false: 1}[name == "applied"], len(reservedByOrder(t, pool)))

			proxy.OnCommit(nil)
			d := s.eventually(http.StatusOK, deduct).deduction(t)
			require.Equal(t, map[string]int{before.Order: 1, d.Order: 2}, reservedByOrder(t, pool))
		})
	}
}

// startProxy starts a proxy before the database of cfg, which then uses that.
func startProxy(t *testing.T, cfg *Config) *pgproxy.Proxy {
	t.Helper()
	proxy, err := pgproxy.New(cfg.Postgres)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	cfg.Postgres = proxy.DSN()
	return proxy
}

// What is there is left as it is, so each start of a deployment may run it.
func TestInit_PreparesADatabaseOnce(t *testing.T) {
	dsn := pgserver.Database(t)
	require.NoError(t, Initialize(t.Context(), dsn, io.Discard))
	require.Equal(t, http.StatusOK, startService(t, config(t, dsn)).get("/readyz").status)
	var out bytes.Buffer
	require.NoError(t, Initialize(t.Context(), dsn, &out))
	require.Contains(t, out.String(), `100 units of "lamp-7"`)
}
