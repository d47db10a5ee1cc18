package etcd

import (
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/fence/etcd/internal/queue"
)

// ErrConfig: NewLocker refused an argument or a field of Config. See ConfigError.
var ErrConfig = errors.New("etcd: bad config")

// ConfigError says which argument or field of NewLocker is bad, and why. It
// is ErrConfig.
type ConfigError struct {
	Field  string
	Reason string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("etcd: bad config: %s %s", e.Field, e.Reason)
}

// Is reports whether target is ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// Sentinels for what is wrong with etcd, wherever an error comes from it: in a
// *fence.UnavailableError, or behind the loss of a lease. The error's text says
// what to do about it, and wraps etcd's own.
var (
	// ErrNoSpace: etcd has used up its quota and takes only what needs no space.
	// Nothing is acquired; what is held is renewed and can be released.
	ErrNoSpace = cluster.ErrNoSpace
	// ErrPermission: the client's user lacks a right that the package comment
	// names.
	ErrPermission = cluster.ErrPermission
	// ErrUnauthenticated: etcd wants to know who the client is, and takes neither
	// its password, nor its token, nor its certificate for it.
	ErrUnauthenticated = cluster.ErrUnauthenticated
	// ErrUnreachable: no member answers, or those that do can't reach a majority.
	// The outcome of what was asked is open, and is settled in the background.
	ErrUnreachable = cluster.ErrUnreachable
	// ErrUnknownProclaim: it isn't known whether a value was proclaimed. It may be,
	// also later on, until the next Proclaim that returns nil.
	ErrUnknownProclaim = queue.ErrUnknownProclaim
	// ErrInvalidValue: a value can't be proclaimed. See InvalidValueError.
	ErrInvalidValue = queue.ErrInvalidValue
)

// MaxValueLen is the longest value that a leader can proclaim, in bytes.
const MaxValueLen = queue.MaxValueLen

// What is inside a *fence.UnavailableError, and an InvalidValueError.
type (
	EpochError        = keys.EpochError
	WentBackError     = cluster.WentBackError
	QueueLostError    = queue.LostError
	InvalidValueError = queue.InvalidValueError
)
