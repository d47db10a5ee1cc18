// Package keylock is a fence.Locker on a service that keeps a key for each resource: Redis, NATS, ZooKeeper, Kubernetes.
// A Service says how the key is taken, renewed and given back; this package does the rest. What a Service promises is
// checked by package servicetest.
package keylock

import (
	"context"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// Request says who asks for a resource.
type Request struct {
	Resource string
	Process  string        // of the Locker, which may ask for many holders
	Holder   string        // of this grant alone; as Process it has no control character
	TTL      time.Duration // for which the key outlives its last renewal
	Mark     time.Duration // for which the holder is to see that this process waits; 0 if it doesn't
	Value    string        // to be kept with the key: see fence.ValidateValue
}

// Owner is who has a key, and what is known of it.
type Owner struct {
	Resource, Process, Holder, Value string

	Token fence.Token
	Left  time.Duration // of its time to live
}

// Service is a lock service. A method makes one attempt, and may still take effect when its context has ended. Its
// methods are called concurrently.
type Service interface {
	// Acquire makes the key the holder's for TTL, and returns its token, which is higher than that of any grant before
	// it; if it is the holder's already, with the same token: an answer may have been lost. While it is another's,
	// Acquire changes nothing of it, fails with a *fence.LockedError that names its holder if that is known, and
	// lets Contended tell the holder's process for Mark, if that is another.
	Acquire(ctx context.Context, r Request) (fence.Token, error)
	// Renew keeps the key, with the request's value, for another TTL if it is the holder's with that token, and reports
	// whether it is. With another token a late request has taken it anew, perhaps after another holder.
	Renew(ctx context.Context, r Request, token fence.Token) (bool, error)
	// Release deletes the key if it is the holder's, or its place in the queue, and nothing of others.
	Release(ctx context.Context, r Request) error
	// Contended returns for which of the requests, which have their keys, another process waits.
	Contended(ctx context.Context, of []Request) ([]bool, error)
	// Raise makes every later token of the resource higher than above, and none lower than it would have been. The
	// token of a holder stays.
	Raise(ctx context.Context, resource string, above fence.Token) error
	// Look returns the key's owner, with an empty Holder if there is none.
	Look(ctx context.Context, resource string) (Owner, error)
	// List returns the owners of all keys, and behind each those that wait in a Queue, in order.
	List(ctx context.Context) ([]Owner, error)
	// Check takes and gives back the key of r, which nobody else asks for, and leaves nothing of it.
	Check(ctx context.Context, r Request) error
	// Explain says why a request failed, and what to do about it.
	Explain(err error) (fence.UnavailableReason, error)
}

// Queue is a Service whose Acquire leaves a place in the order of arrival while the key is another's. Release takes it
// away.
type Queue interface {
	Service
	Queues()
}

// Lasting is a Service whose keys don't expire while the process is there. A key is given back until that is confirmed,
// or the Locker is closed, but no caller waits for longer than for one that expires.
type Lasting interface {
	Service
	Lasts()
}

// Watcher is a Service that tells when to ask again, so that a call that waits needn't poll.
type Watcher interface {
	Service
	// Watch calls changed when the key may be free, until ctx ends or it fails.
	Watch(ctx context.Context, r Request, changed func())
}

// Refusal is an answer of the service that names what to do.
type Refusal struct {
	Remedy    string
	Err       error
	Temporary bool
}

func (e *Refusal) Error() string { return e.Remedy + ": " + e.Err.Error() }

func (e *Refusal) Unwrap() error { return e.Err }

// Retryable tells package guard that the same call may succeed.
func (e *Refusal) Retryable() bool { return e.Temporary }
