#!/usr/bin/env bash
# github.com/nats-io/nats-server/v2 v2.15.2, with github.com/nats-io/nats.go v1.55.0: in a stream with
# SubjectDeleteMarkerTTL (LimitMarkerTTL of a key-value bucket), an update that the server has acknowledged may vanish
# within milliseconds, though its own time to live is an hour and its condition (Nats-Expected-Last-Subject-Sequence)
# held. It takes an update just as the value before it expires: the server puts the delete marker in its queue, behind
# the updates that are there already, with a rollup and without a condition, so that it deletes what they wrote.
#
# Seen: 20,000 keys with a time to live of 1 s, each updated once, if it is still there, about when it expires.
#   with a marker: 5 to 15 of the acknowledged updates are gone
#   without one:   none; those that came late were refused
#
# Why it matters: bucket.Create(ctx, key, value, jetstream.KeyTTL(ttl)) needs LimitMarkerTTL, as its documentation says,
# and is the usual way to a lock or a leader's key in NATS. A holder that renews late is told that it has the key, for a
# full time to live, and the next one takes it at once. A stream with AllowMsgTTL alone expires by sequence, and keeps
# the renewal.
#
# Exits 1 if the behaviour has changed: if no update with a marker was lost in 20 rounds, or one without was.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	github.com/nats-io/nats-server/v2 v2.15.2
	github.com/nats-io/nats.go v1.55.0
)
EOF
cat >main.go <<'EOF'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const keys = 20000

func main() {
	s := must(server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: "data", NoSigs: true, NoLog: true}))
	s.Start()
	defer s.Shutdown()
	if !s.ReadyForConnections(time.Minute) {
		panic("the server doesn't start")
	}
	nc := must(nats.Connect(s.ClientURL()))
	js := must(jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(keys)))
	fmt.Println("nats-server", server.VERSION, "nats.go", nats.Version)
	lostWith, lostWithout := 0, 0
	for n := 0; n < 20 && lostWith == 0; n++ {
		// The server looks for what has expired a few times a second: each round tries another moment.
		at := time.Second + time.Duration(n%5)*100*time.Millisecond
		lostWithout += round(js, fmt.Sprint("without", n), 0, at)
		lostWith += round(js, fmt.Sprint("with", n), time.Second, at)
	}
	if lostWith == 0 || lostWithout > 0 {
		fmt.Println("the behaviour has changed")
		os.Exit(1)
	}
}

// round returns how many acknowledged updates are gone.
func round(js jetstream.JetStream, name string, marker, at time.Duration) (lost int) {
	ctx := context.Background()
	stream := must(js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".*"}, MaxMsgsPerSubject: 1, AllowRollup: true, AllowMsgTTL: true, SubjectDeleteMarkerTTL: marker,
	}))
	subject := func(key int) string { return fmt.Sprint(name, ".", key) }
	publish := func(value string, options func(key int) []jetstream.PublishOpt) (acks [keys]uint64) {
		var futures [keys]jetstream.PubAckFuture
		for key := range keys {
			futures[key] = must(js.PublishAsync(subject(key), []byte(value), options(key)...))
		}
		for key, f := range futures {
			select {
			case ack := <-f.Ok():
				acks[key] = ack.Sequence
			case <-f.Err():
			}
		}
		return acks
	}
	begun := time.Now()
	created := publish("first", func(int) []jetstream.PublishOpt {
		return []jetstream.PublishOpt{jetstream.WithMsgTTL(time.Second), jetstream.WithExpectLastSequencePerSubject(0)}
	})
	time.Sleep(time.Until(begun.Add(at)))
	updated := publish("second", func(key int) []jetstream.PublishOpt {
		return []jetstream.PublishOpt{jetstream.WithMsgTTL(time.Hour), jetstream.WithExpectLastSequencePerSubject(created[key])}
	})
	acknowledged := 0
	for key, sequence := range updated {
		if sequence == 0 {
			continue // refused: it had expired
		}
		acknowledged++
		if m, err := stream.GetLastMsgForSubject(ctx, subject(key)); err != nil || string(m.Data) != "second" {
			lost++
		}
	}
	fmt.Printf("marker %v, updates %v after the first key: %d of %d acknowledged, %d of them gone\n", marker, at, acknowledged, keys, lost)
	must(0, js.DeleteStream(ctx, name))
	return lost
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
EOF
go mod tidy >/dev/null 2>&1
go run .
