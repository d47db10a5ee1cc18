// Package live serves a page to look at: workers that sell one product, which can be stopped, killed and cut off,
// with the fence and without. They are those of package demo.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/fencekit/fencekit/examples/inventory/demo"
	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// Config says where "inventory try" serves.
type Config struct {
	API  service.Config
	Page string // address, on loopback
}

// Parse reads the command line of "inventory try".
func Parse(args []string) (Config, error) {
	var cfg Config
	cfg.API, _ = service.ParseServe(nil) // the defaults
	flags := flag.NewFlagSet("inventory try", flag.ContinueOnError)
	flags.StringVar(&cfg.API.Listen, "listen", cfg.API.Listen, "address to serve the HTTP API on; there is no authentication")
	flags.StringVar(&cfg.Page, "page", "127.0.0.1:8088", "address to serve the page on: one of this machine's own")
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("%s: what is %q?", flags.Name(), flags.Args())
	}
	return cfg, err
}

// Try serves the page and the HTTP API on an etcd and a Postgres of its own, which end with it.
func Try(ctx context.Context, cfg Config, out io.Writer, log *slog.Logger) error {
	listener, err := listenLoopback(cfg.Page)
	if err != nil {
		return err
	}
	defer listener.Close() // closed already, unless a server could not be started
	api, err := service.Listen(cfg.API.Listen)
	if err != nil {
		return err
	}
	defer api.Close()
	return demo.WithServers(ctx, func(etcd *etcdserver.Server, pg *pgserver.Server) error {
		return demo.WithDatabase(ctx, pg, "try", func(dsn string) error {
			if err := service.Initialize(ctx, dsn, out); err != nil {
				return err
			}
			cfg.API.Etcd, cfg.API.Postgres = etcd.Endpoint(), dsn
			fmt.Fprintf(out, "for another server on the same stock: %s serve -listen 127.0.0.1:8081 -etcd %s -postgres '%s'\n", os.Args[0], etcd.Endpoint(), dsn)
			fmt.Fprintf(out, "a page to look at: http://%s\n", listener.Addr())
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			served := make(chan error, 1)
			go func() {
				defer cancel()
				served <- newShop(etcd, pg).serve(ctx, listener, log)
			}()
			err := service.ServeOn(ctx, api, cfg.API, out, log)
			cancel()
			return errors.Join(err, <-served)
		})
	})
}

// state is all of the page but the log.
type state struct {
	Run      string  `json:"run"`
	Fenced   bool    `json:"fenced"`
	OnHand   int     `json:"onHand"`
	Sold     int     `json:"sold"`
	Oversold int     `json:"oversold"`
	TTL      int     `json:"ttl"` // seconds
	Lots     []lot   `json:"lots"`
	Lanes    []*lane `json:"lanes"`
}

type lot struct {
	Quantity int `json:"quantity"`
	Sold     int `json:"sold"`
}

// lane is what the page shows of one worker.
type lane struct {
	Name     string `json:"name"`
	Status   status `json:"status"`
	Cut      bool   `json:"cut"`   // from etcd
	Token    int64  `json:"token"` // of its latest lock
	Lock     string `json:"lock"`  // held, waiting, or empty: as etcd has it
	Lease    int    `json:"lease"` // seconds, if there is a lock
	Sold     int    `json:"sold"`
	Rejected int    `json:"rejected"`
	Note     string `json:"note"`
	NoteKind kind   `json:"noteKind"`

	worker *demo.Worker // nil once killed
	mend   func()       // nil unless cut off
	late   bool         // it runs on after a pause, and hasn't written yet
}

type status string

const (
	selling  status = "selling"
	stopping status = "stopping" // told to, and on its way to the point between read and write
	stopped  status = "stopped"
	ending   status = "ending" // killed, and not yet gone
	killed   status = "killed"
)

// entry is a line of the log.
type entry struct {
	ID     string `json:"id"`
	At     string `json:"at"` // seconds since the round began
	Kind   kind   `json:"kind"`
	Worker string `json:"worker,omitempty"`
	Token  int64  `json:"token,omitempty"` // that was claimed, or came late
	Text   string `json:"text"`
}

type kind string

const (
	claimed  kind = "claimed"
	fault    kind = "fault" // what the visitor did
	rejected kind = "rejected"
	oversold kind = "oversold"
	plain    kind = "plain"
)

// do is what a button asks for.
type do struct {
	Do     string `json:"do"`
	Worker string `json:"worker"`
}

func (s *state) marshal() []byte {
	b, _ := json.Marshal(s)
	return b
}
