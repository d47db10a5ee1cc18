// Command fencectl is that of Fencekit, for locks in NATS too: --locks nats://HOST:PORT?bucket=BUCKET, with
// &creds=FILE for a file of credentials.
package main

import (
	"context"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencekit/fencekit/fence/natslock"
	"github.com/fencekit/fencekit/internal/fencectl"
)

func main() {
	plain := fencectl.LockService{URL: "nats://HOST:PORT?bucket=BUCKET", Open: open}
	fencectl.Main(plain, fencectl.LockService{URL: "tls://HOST:PORT?bucket=BUCKET", Open: open})
}

func open(_ context.Context, of *url.URL, ttl time.Duration) (fencectl.Locker, func(), error) {
	at, query := *of, of.Query()
	at.RawQuery = ""
	options := []nats.Option{nats.MaxReconnects(-1)}
	if file := query.Get("creds"); file != "" {
		options = append(options, nats.UserCredentials(file))
	}
	nc, err := nats.Connect(at.String(), options...)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, err
	}
	l, err := natslock.New(js, &natslock.Config{Bucket: query.Get("bucket"), TTL: ttl})
	return l, nc.Close, err
}
