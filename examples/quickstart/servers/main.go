// Command servers runs an etcd and a Postgres for trying Fencekit out: new ones, which end with
// it and keep nothing. It prints how the quickstart reaches them. etcd is a part of this command;
// for Postgres it takes the one that is installed here, or Docker.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
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
	fmt.Fprintf(out, "Running until Ctrl-C. In another terminal:\n\nexport DATABASE_URL='%s'\n"+
		"export FENCEKIT_DATABASE_URL=\"$DATABASE_URL\" # for fencectl\n\n"+
		"For locks in etcd also:\n\nexport ETCD_ENDPOINT='%s'\nexport FENCEKIT_ETCD_ENDPOINTS=\"$ETCD_ENDPOINT\"\n", pg.DSN(), etcd.Endpoint())
	<-ctx.Done()
	return nil
}

func stop(server interface{ Stop(context.Context) error }) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return server.Stop(ctx)
}
