// Package demo shows the inventory at work: it starts an etcd and a Postgres, and on them workers that sell, one of
// which is stopped between its read and its write, with the fence and without.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
)

// Run plays the schedule with and without the fence, and prints the story with a verdict. It fails if the fence
// let something through, or if its control did not oversell: then the schedule showed nothing.
func Run(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "Fencekit: three worker processes sell %d units of %q; one is stopped between its read and its write.\n\n", service.OnHand(), service.SKU)
	return withServers(ctx, func(etcd *etcdserver.Server, pg *pgserver.Server) error {
		s := &story{out: out}
		fmt.Fprintf(out, "\n1. With the fence: guard.Do\n")
		fenced, err := (&act{fenced: true, etcd: etcd, postgres: pg, story: s}).play(ctx)
		if err != nil {
			return err
		}
		printResult(out, fenced)
		fmt.Fprintf(out, "\n2. The control: the same allocation and the same etcd lock, without claim and seal\n")
		control, err := (&act{fenced: false, etcd: etcd, postgres: pg, story: s}).play(ctx)
		if err != nil {
			return err
		}
		printResult(out, control)
		return verdict(out, fenced, control)
	})
}

func printResult(out io.Writer, r result) {
	fmt.Fprintf(out, "  => on hand %d, sold %d, oversold %d", r.stock.OnHand, r.stock.Reserved, r.stock.Oversold())
	for _, rejection := range r.rejections {
		fmt.Fprintf(out, "; recorded rejection: token %d (%s) by token %d (%s), %dx",
			rejection.Grant.Token, label(rejection.Grant.Holder), rejection.Current.Token, label(rejection.Current.Holder), rejection.Count)
	}
	fmt.Fprintln(out)
}

var (
	ErrViolated     = errors.New("the fence let an oversell through")
	ErrInconclusive = errors.New("the schedule showed nothing")
)

func verdict(out io.Writer, fenced, control result) error {
	switch {
	case fenced.stock.Oversold() > 0:
		return ErrViolated
	case fenced.stock.Reserved != fenced.stock.OnHand:
		return fmt.Errorf("%w: with the fence %d of %d units were sold", ErrInconclusive, fenced.stock.Reserved, fenced.stock.OnHand)
	case len(fenced.rejections) == 0:
		return fmt.Errorf("%w: no worker was rejected", ErrInconclusive)
	case control.stock.Oversold() == 0:
		return fmt.Errorf("%w: the control did not oversell", ErrInconclusive)
	}
	fmt.Fprintf(out, "\nShown: after the same pause, the fence rejected the late write and sold exactly %d; the lock alone oversold by %d.\n",
		fenced.stock.Reserved, control.stock.Oversold())
	return nil
}

// Work is the whole of a worker process: it reads the command line, and returns the exit code.
func Work(args []string) int {
	var cfg WorkerConfig
	flags := flag.NewFlagSet("inventory worker", flag.ContinueOnError)
	flags.StringVar(&cfg.Name, "name", "worker", "label of the worker")
	flags.StringVar(&cfg.Endpoint, "etcd", "http://127.0.0.1:2379", "endpoint of etcd")
	flags.StringVar(&cfg.DSN, "postgres", "", "connection string of the database")
	flags.StringVar(&cfg.Prefix, "prefix", "inventory", "prefix of the keys in etcd")
	flags.BoolVar(&cfg.Fenced, "fenced", true, "use guard.Do; otherwise only the lock")
	flags.IntVar(&cfg.PauseAt, "pause-at", 0, "stop between read and write once, when so few units are available")
	if err := flags.Parse(args); err != nil {
		return 64 // which has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runWorker(ctx, cfg, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "inventory:", err)
		return 3
	}
	return 0
}

const serverTimeout = 30 * time.Second

// withDatabase calls f with a database of its own. It drops the database in the end: the server may have been there before.
func withDatabase(ctx context.Context, pg *pgserver.Server, name string, f func(dsn string) error) (err error) {
	name = fmt.Sprintf("inventory_%s_%d", name, time.Now().UnixNano())
	// A signal in the midst of making it would leave a database behind.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverTimeout)
	defer cancel()
	dsn, err := pg.CreateDatabase(making, name)
	if err != nil {
		return err
	}
	defer func() {
		dropping, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverTimeout)
		defer cancel()
		err = errors.Join(err, pg.DropDatabase(dropping, name))
	}()
	return f(dsn)
}

// withServers calls f with an etcd and a Postgres, which end with it.
func withServers(ctx context.Context, f func(*etcdserver.Server, *pgserver.Server) error) (err error) {
	etcd, err := etcdserver.Start(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(etcd)) }()
	pg, err := pgserver.Start(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(pg)) }()
	return f(etcd, pg)
}

func stop(server interface{ Stop(context.Context) error }) error {
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	return server.Stop(ctx)
}
