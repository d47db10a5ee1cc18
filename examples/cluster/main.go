// Command cluster runs three Postgres servers under Patroni with an etcd of three members, an
// HAProxy and a PgBouncer before them, and three servers of the inventory, which sell all the
// time. It kills, pauses and cuts off the primary, switches it over, says what happened each
// time, and counts what was lost and oversold. Then it runs on until Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencekit/fencekit/internal/testenv/patroni"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

const (
	exitViolated     = 1
	exitInconclusive = 2
	exitEnvironment  = 3
	exitUsage        = 64
)

// errViolated: something was oversold, or a synchronous cluster lost an acknowledged sale.
var errViolated = errors.New("a guarantee was violated")

func main() {
	asynchronous := flag.Bool("asynchronous", false, "let a standby become the primary that lacks acknowledged sales")
	end := flag.Bool("end", false, "end after the faults instead of running on")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, !*asynchronous, *end)
	code := exitEnvironment
	switch {
	case err == nil:
		return
	case errors.Is(err, errViolated):
		code = exitViolated
	case ctx.Err() != nil:
		code = exitInconclusive
	case errors.As(err, new(*process.NotFoundError)):
		err = fmt.Errorf("%w\n(as root on Debian \"make cluster\" does it)", err)
	}
	fmt.Fprintln(os.Stderr, "cluster:", err)
	os.Exit(code)
}

func run(ctx context.Context, synchronous, end bool) (err error) {
	fmt.Println("starting three etcd members, three Postgres servers under Patroni, HAProxy and PgBouncer")
	s, err := start(ctx, synchronous)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	s.describe()
	if err := s.walk(ctx, patroni.Faults); err != nil || end {
		return err
	}
	fmt.Println("All of it runs on until Ctrl-C.")
	<-ctx.Done()
	return nil
}
