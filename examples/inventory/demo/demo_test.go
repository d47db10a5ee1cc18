package demo

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
)

// The demo starts its own binary as workers: in a test that is the test's.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		os.Exit(work(os.Args[2:]))
	}
	testenv.Main(m)
}

func work(args []string) (code int) {
	cfg, err := ParseWorker(args)
	if err != nil {
		return 64
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := RunWorker(ctx, cfg, os.Stdout); err != nil {
		return 3
	}
	return 0
}

// quiet is a log that goes nowhere.
var quiet = slog.New(slog.DiscardHandler)

// patient is a context that only a hang exceeds.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestDemo_FenceHoldsAndControlOversells(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, Run(t.Context(), &out), out.String())
	require.Contains(t, out.String(), "REJECTED by Postgres")
	require.Contains(t, out.String(), "sold exactly 100; the lock alone oversold by 12")
	requireEachSaleTold(t, out.String())
}

// requireEachSaleTold requires that the sales which a story tells of are those that the database has: 100 in each act, in
// two parts, the first of which leaves what the worker then reads.
func requireEachSaleTold(t *testing.T, story string) {
	t.Helper()
	sales := regexp.MustCompile(`hand to hand: (.*)`).FindAllStringSubmatch(story, -1)
	reads := regexp.MustCompile(`reads (\d+) available`).FindAllStringSubmatch(story, -1)
	require.Len(t, sales, 4, story)
	require.Len(t, reads, 2, story)
	for i, read := range reads {
		require.Equal(t, 100, total(t, sales[2*i][1])+atoi(t, read[1]), story)
		require.Equal(t, 100, total(t, sales[2*i][1])+total(t, sales[2*i+1][1]), story)
	}
}

// total adds up what "worker-a 14, worker-b 12" were.
func total(t *testing.T, sales string) (sum int) {
	t.Helper()
	for sale := range strings.SplitSeq(sales, ", ") {
		_, quantity, _ := strings.Cut(sale, " ")
		sum += atoi(t, quantity)
	}
	return sum
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// Another worker's last sale before a pause may be told after it.
func TestStory_TellsWhatTheDatabaseHas(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &story{out: &out}
	s.begin()
	s.event("worker-a", event{Event: eventSold, Quantity: 20})
	s.event("worker-a", event{Event: eventPausing, Available: 60, Sold: map[string]int{"worker-a": 20, "worker-b": 20}})
	s.event("worker-b", event{Event: eventSold, Quantity: 20})
	s.sales(map[string]int{"worker-a": 20, "worker-b": 50, "worker-c": 30})
	require.Contains(t, out.String(), "hand to hand: worker-a 20, worker-b 20\n")
	require.Contains(t, out.String(), "hand to hand: worker-b 30, worker-c 30\n")
}

// sold is what there is to read when so many units are reserved.
func sold(quantity int) service.Stock { return service.Stock{OnHand: 100, Reserved: quantity} }

func TestVerdict_IsAsStrictAsItSays(t *testing.T) {
	good := result{stock: sold(100), rejections: []storage.Rejection{{Count: 1}}}
	control := result{stock: sold(112)}
	require.NoError(t, verdict(&bytes.Buffer{}, good, control))
	for name, c := range map[string]struct {
		fenced, control result
		want            error
	}{
		"the fence oversold":     {result{sold(101), good.rejections}, control, ErrViolated},
		"not everything sold":    {result{sold(99), good.rejections}, control, ErrInconclusive},
		"none rejected":          {result{sold(100), nil}, control, ErrInconclusive},
		"the control didn't":     {good, result{stock: sold(100)}, ErrInconclusive},
		"both sold out, no harm": {result{sold(100), nil}, result{stock: sold(100)}, ErrInconclusive},
	} {
		t.Run(name, func(t *testing.T) {
			err := verdict(&bytes.Buffer{}, c.fenced, c.control)
			require.ErrorIs(t, err, c.want)
		})
	}
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
	require.NoError(t, service.SetUp(ctx, pool))
	// More than can be sold before the signal arrives, however late that is.
	_, err = pool.Exec(ctx, "insert into lot (sku, received, quantity) values ($1, date '2027-01-01', 1000000)", service.SKU)
	require.NoError(t, err)
	cfg := WorkerConfig{name: "w", endpoint: etcdserver.Shared(t).Endpoint(), dsn: dsn, prefix: t.Name(), fenced: true}
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
	s, err := service.ReadStock(ctx, pool)
	require.NoError(t, err)
	require.Less(t, s.Reserved, s.OnHand, "it was to stop before it had sold everything")

	client := etcdserver.Client(t)
	keys, err := client.Get(ctx, t.Name(), clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, keys.Kvs)
}

func TestWorker_SaysWhatIsWrong(t *testing.T) {
	cfg := WorkerConfig{name: "w", endpoint: etcdserver.Shared(t).Endpoint(), prefix: t.Name(), fenced: true}
	for dsn, text := range map[string]string{
		pgserver.Database(t):                     "fencectl migrate up",
		"postgres://127.0.0.1:1/x":               "connection refused",
		"postgres://127.0.0.1:1/x?sslmode=maybe": "sslmode",
	} {
		cfg.dsn = dsn
		var out bytes.Buffer
		err := RunWorker(t.Context(), cfg, &out)
		require.ErrorContains(t, err, text)
	}
}
