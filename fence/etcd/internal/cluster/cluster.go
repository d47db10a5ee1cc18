// Package cluster is etcd as one Locker sees it. It knows why requests fail, and whether etcd was restored.
package cluster

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
)

type Cluster struct {
	Client         *clientv3.Client
	Keys           Space
	RequestTimeout time.Duration
	Logger         *slog.Logger
	OnWentBack     func() // called for each answer that shows an older state; set before any request
	OnEpoch        func() // called for each answer that shows the epoch; set before any request
	Tasks          *session.Tasks

	*watermark
	turn       atomic.Uint32
	rechecking atomic.Bool
	genuine    atomic.Int64 // the restarts of the mark under which CheckServer succeeded, plus 1
}

func New(client *clientv3.Client, names Space, requestTimeout time.Duration, logger *slog.Logger) *Cluster {
	c := &Cluster{
		Client: client, Keys: names, RequestTimeout: requestTimeout, Logger: logger, OnWentBack: func() {}, OnEpoch: func() {},
		Tasks: session.NewTasks(), watermark: newWatermark(names.Epoch()),
	}
	c.turn.Store(rand.Uint32() >> 1)
	return c
}

// ErrClientClosed is returned without a request, since a closed client would retry each for seconds.
var ErrClientClosed = errors.New("etcd: the etcd client was closed before the locker: close the guard first, then the locker, then the client")

var ErrLockerClosed = fmt.Errorf("%w: locker is closed", fence.ErrClosed)

func (c *Cluster) Closed() bool { return ClientClosed(c.Client) }

// ClientClosed reports whether Close was called. The end of the client's Ctx doesn't show that:
// clientv3.Config.Context ends it too.
func ClientClosed(client *clientv3.Client) bool {
	return client.ActiveConnection().GetState() == connectivity.Shutdown
}

func (c *Cluster) Commit(ctx context.Context, txn clientv3.Txn) (*clientv3.TxnResponse, error) {
	if c.Closed() {
		return nil, ErrClientClosed
	}
	sent := c.Sending()
	resp, err := txn.Commit()
	if err != nil {
		return nil, err
	}
	if err := c.Check(sent, resp.Header); err != nil {
		return nil, err
	}
	return resp, nil
}

func (c *Cluster) Ask(ctx context.Context, op string, f func(context.Context) error) error {
	if c.Closed() {
		return c.Unavailable(op, ErrClientClosed)
	}
	request, cancel := context.WithTimeout(ctx, c.RequestTimeout)
	defer cancel()
	return c.Failed(ctx, op, f(request))
}

func (c *Cluster) Read(ctx context.Context, op string, ops ...clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	err = c.Ask(ctx, op, func(ctx context.Context) (err error) {
		resp, err = c.Client.Txn(ctx).Then(ops...).Commit()
		return err
	})
	return resp, err
}

// Check returns a *WentBackError if an answer shows an older state than the mark taken before its request, and from
// then on until Recover succeeds.
func (c *Cluster) Check(sent Mark, h *pb.ResponseHeader) error {
	return c.report(c.check(sent, h))
}

func (c *Cluster) report(err error) error {
	if err != nil {
		c.Logger.Error("etcd went back to an older state; no locks are granted", "error", err)
		c.OnWentBack()
	}
	return err
}

func (c *Cluster) Recover(ctx context.Context) error {
	if c.WentBack() == nil {
		return nil
	}
	e, err := c.ReadEpoch(ctx)
	if err != nil {
		return err
	}
	return c.restart(e)
}

// ReadEpoch doesn't go through raft: see watermark.
func (c *Cluster) ReadEpoch(ctx context.Context) (Epoch, error) {
	resp, err := c.Client.Get(ctx, c.Keys.Epoch())
	if err != nil {
		return Epoch{}, err
	}
	return ParseEpoch(c.Keys.Epoch(), resp.Kvs)
}

func (c *Cluster) RefreshEpoch(ctx context.Context) error {
	// Every locker may delete this, also when etcd is out of space.
	return c.readEpoch(ctx, clientv3.OpDelete(c.Keys.Void(clientv3.NoLease)))
}

// Never is a condition that never holds. It makes a Txn go through raft without writing, so that its answer isn't
// older than what was seen.
func (c *Cluster) Never() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(c.Keys.Void(clientv3.NoLease)), "<", 0)
}

func (c *Cluster) readEpoch(ctx context.Context, ops ...clientv3.Op) error {
	sent := c.Sending()
	resp, err := c.Commit(ctx, c.Client.Txn(ctx).If(c.Never()).Then(ops...).Else(clientv3.OpGet(c.Keys.Epoch())))
	if err != nil {
		return err
	}
	e, err := ParseEpoch(c.Keys.Epoch(), resp.Responses[0].GetResponseRange().Kvs)
	if err != nil {
		return err
	}
	err = c.report(c.sawEpoch(sent, e))
	c.OnEpoch()
	return err
}

// CheckServer returns an error with the reason fence.Imitated if the server puts a value under the key that a Txn
// compares, instead of the one that it names: then each process would find its own lock key alone, or none. It
// asks once, and again after Recover, when another server may answer. Its key lives under id, or else under a lease
// of its own.
func (c *Cluster) CheckServer(ctx context.Context, id clientv3.LeaseID) error {
	asking := int64(c.Sending().restarts) + 1
	if c.genuine.Load() >= asking {
		return nil
	}
	if id == clientv3.NoLease {
		lease, err := c.Client.Grant(ctx, 1+int64(c.RequestTimeout/time.Second)) // it outlives ctx
		if err != nil {
			return err
		}
		id = lease.ID
		defer func() { _, _ = c.Client.Revoke(ctx, id) }()
	}
	compared := c.Keys.Void(id) + "-" + crand.Text()
	named := compared + "-named"
	// In this form kine takes a Txn.
	_, err := c.Commit(ctx, c.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(compared), "=", 0)).
		Then(clientv3.OpPut(named, "", clientv3.WithLease(id))).
		Else(clientv3.OpGet(named)))
	if err != nil {
		return err
	}
	found, err := c.Client.Get(ctx, named)
	switch {
	case err != nil:
		return err
	case len(found.Kvs) == 0:
		return Because(fence.Imitated, "etcd: the server at %s has etcd's API and isn't etcd, as kine in k3s: it puts a value under "+
			"another key than a transaction says, so locks there would exclude nobody; give the client the endpoints of etcd's members",
			c.endpoints())
	}
	if _, err := c.Client.Delete(ctx, named); err != nil {
		return err
	}
	c.genuine.Store(asking)
	return nil
}

// Probe asks whether etcd would take an acquisition. Its Txn needs the same rights and space, but never writes.
func (c *Cluster) Probe(ctx context.Context) error {
	if err := c.Recover(ctx); err != nil {
		return err
	}
	if err := c.CheckServer(ctx, clientv3.NoLease); err != nil {
		return err
	}
	acquisition := []clientv3.Op{clientv3.OpPut(c.Keys.Void(clientv3.NoLease), "")}
	if !c.Keys.Mutex { // with Mutex the rights are those to each resource
		acquisition = append(acquisition, clientv3.OpPut(c.Keys.Queue("probe")+c.Keys.Name(clientv3.NoLease, 0), ""))
	}
	acquisition = append(acquisition, clientv3.OpGet(c.Keys.Epoch()))
	return c.readEpoch(ctx, acquisition...)
}

// Recheck calls CheckNow in the background until etcd answers. A restore breaks every watch, and a holder that only
// renews would not notice it, since renewals don't go through raft.
func (c *Cluster) Recheck() {
	if !c.rechecking.CompareAndSwap(false, true) {
		return
	}
	c.Tasks.Start(func(ctx context.Context) {
		defer c.rechecking.Store(false)
		for n := 0; ctx.Err() == nil && !c.CheckNow(ctx); n++ {
			session.Pause(ctx, n)
		}
	})
}

func (c *Cluster) CheckNow(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.RequestTimeout)
	defer cancel()
	err := c.RefreshEpoch(ctx)
	return err == nil || errors.As(err, new(reasoned)) || errors.Is(err, ErrClientClosed)
}

func badClient(reason string, args ...any) error {
	return fmt.Errorf("%w: the etcd client %s", fence.ErrInvalid, fmt.Sprintf(reason, args...))
}

func ValidateClient(client *clientv3.Client) error {
	switch {
	case client == nil:
		return badClient("is nil")
	case client.ActiveConnection() == nil:
		return badClient("has no connection of its own; make it with clientv3.New")
	case ClientClosed(client):
		return badClient("is closed")
	}
	for _, endpoint := range client.Endpoints() {
		switch {
		case endpoint == "":
			return badClient("has an empty endpoint; give the address of a member, as http://127.0.0.1:2379")
		case strings.Contains(endpoint, ","):
			return badClient("has the endpoint %q: give each member's as a string of its own", endpoint)
		case strings.ContainsFunc(endpoint, unicode.IsSpace):
			return badClient("has the endpoint %q with a space in it", endpoint)
		}
	}
	// The watch doesn't use client.Watcher, so it would miss the keys of a namespaced KV.
	plainKV, plainWatcher := clientv3.NewKVFromKVClient(nil, nil), clientv3.NewWatchFromWatchClient(nil, nil)
	if reflect.TypeOf(client.KV) != reflect.TypeOf(plainKV) || reflect.TypeOf(client.Watcher) != reflect.TypeOf(plainWatcher) {
		return badClient("has its KV or Watcher replaced, as by the namespace package; give a plain client and set Config.Prefix instead")
	}
	return nil
}
