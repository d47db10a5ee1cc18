package main

import (
	"bytes"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
)

// The demo starts its own binary as workers, tests as servers, and chaos as both: in
// a test that is the test's.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		os.Exit(run(os.Args[1:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		go func() { // the test holds the other end
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(exitEnvironment)
		}()
		os.Exit(run(os.Args[1:]))
	}
	chaos.Main(m, deductWorkload{}, lockedWorkload{})
}

func TestDemo_FenceHoldsAndControlOversells(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, demo(t.Context(), &out), out.String())
	require.Contains(t, out.String(), "REFUSED by Postgres")
	require.Contains(t, out.String(), "sold exactly 100; the lock alone oversold by 12")
}

func TestVerdict_IsAsStrictAsItSays(t *testing.T) {
	good := result{stock: stock{100, 100}, refusals: []storage.Rejection{{Count: 1}}}
	control := result{stock: stock{100, 112}}
	require.NoError(t, verdict(&bytes.Buffer{}, good, control))
	for name, c := range map[string]struct {
		fenced, control result
		want            error
		code            int
	}{
		"the fence oversold":     {result{stock{100, 101}, good.refusals}, control, errViolated, exitViolated},
		"not everything sold":    {result{stock{100, 99}, good.refusals}, control, errInconclusive, exitInconclusive},
		"none refused":           {result{stock{100, 100}, nil}, control, errInconclusive, exitInconclusive},
		"the control didn't":     {good, result{stock: stock{100, 100}}, errInconclusive, exitInconclusive},
		"both sold out, no harm": {result{stock{100, 100}, nil}, result{stock: stock{100, 100}}, errInconclusive, exitInconclusive},
	} {
		t.Run(name, func(t *testing.T) {
			err := verdict(&bytes.Buffer{}, c.fenced, c.control)
			require.ErrorIs(t, err, c.want)
			require.Equal(t, c.code, exitCode(err))
		})
	}
}

func TestOldestFirst_ServesWhollyOrNotAtAll(t *testing.T) {
	lots := []Lot{{1, 2}, {2, 0}, {3, 5}}
	for _, c := range []struct {
		quantity int
		lines    []Line
		err      error
	}{
		{1, []Line{{1, 1}}, nil},
		{2, []Line{{1, 2}}, nil},
		{3, []Line{{1, 2}, {3, 1}}, nil},
		{7, []Line{{1, 2}, {3, 5}}, nil},
		{8, nil, ErrSoldOut},
	} {
		lines, err := OldestFirst(lots, c.quantity)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.lines, lines)
	}
	_, err := OldestFirst(nil, 1)
	require.ErrorIs(t, err, ErrSoldOut)
}

func TestAllocate_ReadsReservationsAndLeavesNothingWhenSoldOut(t *testing.T) {
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, pgserver.Database(t))
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, setUp(ctx, pool))
	allocate := func(id string, quantity int) (lines []Line, err error) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			lines, err = Allocate(ctx, tx, Order{ID: id, SKU: sku, Quantity: quantity}, OldestFirst)
			return err
		})
		return lines, err
	}
	lines, err := allocate("a", 45)
	require.NoError(t, err)
	require.Equal(t, []Line{{1, 40}, {2, 5}}, lines)
	lines, err = allocate("b", 30)
	require.NoError(t, err)
	require.Equal(t, []Line{{2, 25}, {3, 5}}, lines)
	_, err = allocate("c", 26)
	require.ErrorIs(t, err, ErrSoldOut)
	s, err := readStock(ctx, pool)
	require.NoError(t, err)
	require.Equal(t, stock{100, 75}, s)
}

// A worker that is told to stop finishes what it does and hands its lock back at
// once: no other worker has to wait for its lease to run out.
func TestWorker_StopsGracefully(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := pgserver.Database(t)
	pool, err := pgxpool.New(ctx, dsn)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, setUp(ctx, pool))
	cfg := workerConfig{name: "w", endpoint: etcdserver.Shared(t).Endpoint(), dsn: dsn, prefix: t.Name(), fenced: true}
	w, err := startProcess(ctx, cfg)
	require.NoError(t, err)
	stopped := false
	for e := range w.events {
		require.NotEqual(t, eventFailed, e.Event, e.Error)
		if e.Event == eventSold && !stopped {
			stopped = true
			require.NoError(t, w.cmd.Process.Signal(syscall.SIGTERM))
		}
	}
	<-w.done
	require.NoError(t, w.err)
	require.True(t, stopped)
	s, err := readStock(ctx, pool)
	require.NoError(t, err)
	require.Less(t, s.Reserved, s.OnHand, "it was to stop before it had sold everything")

	client := etcdserver.Client(t)
	keys, err := client.Get(ctx, t.Name(), clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, keys.Kvs)
}

func TestRun_RefusesWrongCommands(t *testing.T) {
	for _, args := range [][]string{nil, {"sell"}, {"worker", "-fast"}, {"demo", "-fast"}, {"demo", "more"}} {
		require.Equal(t, exitUsage, run(args), args)
	}
}

func TestRun_HelpIsNoMistake(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}, {"demo", "--help"}, {"try", "-h"}, {"init", "--help"}, {"serve", "--help"}, {"worker", "--help"}} {
		require.Equal(t, exitOK, run(args), args)
	}
}

func TestWorker_SaysWhatIsWrong(t *testing.T) {
	cfg := workerConfig{name: "w", endpoint: etcdserver.Shared(t).Endpoint(), prefix: t.Name(), fenced: true}
	for dsn, text := range map[string]string{
		pgserver.Database(t):                     "fencectl migrate up",
		"postgres://127.0.0.1:1/x":               "connection refused",
		"postgres://127.0.0.1:1/x?sslmode=maybe": "sslmode",
	} {
		cfg.dsn = dsn
		var out bytes.Buffer
		err := runWorker(t.Context(), cfg, &out)
		require.ErrorContains(t, err, text)
		require.Equal(t, exitEnvironment, exitCode(err))
	}
}
