package cluster

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
)

// Space names the keys of one Config.
type Space struct {
	Prefix string
	Mutex  bool // lock keys as those of etcd's concurrency.Mutex
}

// DefaultPrefix is the default of Space.Prefix.
const DefaultPrefix = "fencekit"

// ValidatePrefix returns an error for what can't be a prefix.
func ValidatePrefix(prefix string) error {
	switch {
	case !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, unicode.IsControl):
		return fmt.Errorf("%w: etcd.Config.Prefix contains bytes that are not UTF-8, or control characters", fence.ErrInvalid)
	case strings.HasSuffix(prefix, "/"):
		return fmt.Errorf("%w: etcd.Config.Prefix %q ends in a slash; leave it out", fence.ErrInvalid, prefix)
	}
	return nil
}

// Validate returns an error for a name that can't be a resource here. With Mutex a queue must not overlap the keys under
// the prefix.
func (k Space) Validate(resource string) error {
	if err := fence.ValidateResource(resource); err != nil || !k.Mutex {
		return err
	}
	queue, own := resource+"/", k.Prefix+"/"
	if strings.HasPrefix(queue, own) || strings.HasPrefix(own, queue) {
		return &fence.InvalidGrantError{Part: "resource", Reason: fmt.Sprintf("%q meets the keys under Config.Prefix %q", resource, k.Prefix)}
	}
	return nil
}

// Queue is the prefix of the keys of one resource. The name is escaped as in a URL path, so that the queue of "a" never
// contains keys of "a/b". With Mutex it isn't, and the queue does.
func (k Space) Queue(resource string) string {
	if k.Mutex {
		return resource + "/"
	}
	return k.Locks() + url.PathEscape(resource) + "/"
}

// Locks is the prefix of all queues; not with Mutex.
func (k Space) Locks() string { return k.Prefix + "/locks/" }

// Evictions is the prefix of the records of all evictions.
func (k Space) Evictions() string { return k.Prefix + "/evicted/" }

// Evicted is the record of the eviction of a token from a resource.
func (k Space) Evicted(resource string, token fence.Token) string {
	return k.Evictions() + token.String() + "/" + url.PathEscape(resource)
}

// ParseQueue returns the resource in whose queue a key is. It reports false for a key in none, and with Mutex.
func (k Space) ParseQueue(key string) (resource string, ok bool) {
	rest, ok := strings.CutPrefix(key, k.Locks())
	escaped, _, inQueue := strings.Cut(rest, "/")
	resource, err := url.PathUnescape(escaped)
	return resource, ok && inQueue && !k.Mutex && err == nil && fence.ValidateResource(resource) == nil
}

// HidesWaiters reports whether the holder of resource may have waiters that its queue doesn't show: with Mutex, those in
// the queue of "a" wait for the holder of "a/b".
func (k Space) HidesWaiters(resource string) bool {
	return k.Mutex && strings.Contains(resource, "/")
}

// Name is the key of an acquisition, within its queue. number distinguishes those that a session has in the queue at the
// same time; with Mutex there is only one. Those that follow one another may have the same key.
func (k Space) Name(id clientv3.LeaseID, number int32) string {
	name := strconv.FormatInt(int64(id), 16)
	if k.Mutex {
		return name
	}
	return name + "-" + strconv.Itoa(int(number))
}

// ParseName is the inverse of Name. It reports false for what isn't such a name, and with Mutex.
func (k Space) ParseName(name string) (id clientv3.LeaseID, number int32, ok bool) {
	session, rest, ok := strings.Cut(name, "-")
	if !ok || k.Mutex {
		return 0, 0, false
	}
	i, notID := strconv.ParseInt(session, 16, 64)
	n, notNumber := strconv.ParseInt(rest, 10, 32)
	return clientv3.LeaseID(i), int32(n), notID == nil && notNumber == nil
}

// Void is the key whose revision rules out the acquiring transactions that the session sent before it was written.
func (k Space) Void(id clientv3.LeaseID) string {
	return k.Prefix + "/void/" + strconv.FormatInt(int64(id), 16)
}

// Epoch is the key of the epoch.
func (k Space) Epoch() string { return k.Prefix + "/epoch" }

// NewHolder returns the name of a new acquisition: label and at least 128 random bits.
func NewHolder(label string) string { return label + "-" + rand.Text() } // mutant: holder-is-the-label

// LockValue is the value of a lock key: for people, for the error of TryAcquire, and for observers of an election. No
// decision depends on it.
type LockValue struct {
	Holder string `json:"holder"`
	Epoch  int64  `json:"epoch"`
	Queued int64  `json:"queued,omitempty"` // when the acquisition began, in ms since 1970 by its own clock
	Value  string `json:"value,omitempty"`
}

// Encode returns v as it is stored, as JSON.
func (v LockValue) Encode() (string, error) {
	data, err := json.Marshal(v)
	return string(data), err
}

// ParseLockValue reads the value of a lock key; false if it names no holder.
func ParseLockValue(text []byte) (LockValue, bool) {
	var v LockValue
	if json.Unmarshal(text, &v) != nil || v.Holder == "" {
		return LockValue{}, false
	}
	return v, true
}

// Proclaimed reports whether text is a proclaimed value and nothing else, as in the key of a candidate with Mutex. That
// may itself be JSON with a holder: only what Encode writes is taken for a LockValue.
func (k Space) Proclaimed(text []byte) bool {
	v, ok := ParseLockValue(text)
	if !ok || !k.Mutex {
		return !ok
	}
	lock, err := v.Encode()
	return err != nil || lock != string(text)
}

// HolderIn returns the holder that the value of a lock key names; "" if it names none.
func HolderIn(value []byte) string {
	v, _ := ParseLockValue(value)
	return v.Holder
}
