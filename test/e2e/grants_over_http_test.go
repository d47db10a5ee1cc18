package e2e_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardhttp"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// bookkeeper is a service with a database of its own, which etcd is unknown to. Each request
// under a grant of resource a counts one up.
func bookkeeper(t *testing.T) (url string, pool *pgxpool.Pool) {
	t.Helper()
	_, pool = counters(t, "a")
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	g, err := guard.New(nil, store, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grants, err := guardhttp.Grants(r.Header)
		if err == nil {
			err = guard.Do(r.Context(), g.UnderGrant(grants...), "a", increment("a"), guard.Retryable())
		}
		guardhttp.Error(w, r, err)
	}))
	t.Cleanup(server.Close)
	return server.URL, pool
}

// A process that holds a resource writes to its own database, and has another service write to
// another one. It stops in between, its lease ends, and its successor does the same. What the
// first one sends when it goes on is rejected by both databases.
func TestHold_ThatWasSupersededWritesToNeitherService(t *testing.T) {
	t.Parallel()
	url, books := bookkeeper(t)
	dsn, stock := counters(t, "a")
	send := func(ctx context.Context) int {
		r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, url, nil) // the end of the lease alone doesn't keep it back
		require.NoError(t, err)
		guardhttp.SetGrants(r.Header, guard.Grants(ctx)...)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	endpoint := etcdserver.Shared(t).Endpoint()
	first := newProcess(t, endpoint, dsn, etcd.Config{}, nil)
	second := newProcess(t, endpoint, dsn, etcd.Config{}, nil)

	err := guard.Hold(patiently(t), first.Guard, "a", func(ctx context.Context, h guard.Runner[pgx.Tx]) error {
		require.NoError(t, guard.Do(ctx, h, "a", increment("a")))
		require.Equal(t, http.StatusOK, send(ctx))
		revokeOnce(t, t.Context(), t.Name())
		err := guard.Hold(patiently(t), second.Guard, "a", func(ctx context.Context, h guard.Runner[pgx.Tx]) error {
			require.NoError(t, guard.Do(ctx, h, "a", increment("a")))
			require.Equal(t, http.StatusOK, send(ctx))
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, http.StatusConflict, send(ctx))
		return guard.Do(context.WithoutCancel(ctx), h, "a", increment("a"))
	})
	require.ErrorIs(t, err, guard.ErrStaleToken)
	require.Equal(t, http.StatusServiceUnavailable, guardhttp.Status(err), "its client need not know of grants, and may ask again")
	require.EqualValues(t, 2, value(t, stock, "a"))
	require.EqualValues(t, 2, value(t, books, "a"))
}
