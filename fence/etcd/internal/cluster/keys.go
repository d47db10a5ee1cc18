package cluster

import (
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

type Space struct {
	Prefix string
	Mutex  bool
}

const DefaultPrefix = "fencekit"

func ValidatePrefix(prefix string) error {
	switch {
	case !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, unicode.IsControl):
		return fmt.Errorf("%w: etcd.Config.Prefix contains bytes that are not UTF-8, or control characters", fence.ErrInvalid)
	case strings.HasSuffix(prefix, "/"):
		return fmt.Errorf("%w: etcd.Config.Prefix %q ends in a slash; leave it out", fence.ErrInvalid, prefix)
	}
	return nil
}

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

// Queue escapes the name as in a URL path, so that the queue of "a" has no keys of "a/b". With Mutex it doesn't.
func (k Space) Queue(resource string) string {
	if k.Mutex {
		return resource + "/"
	}
	return k.Locks() + url.PathEscape(resource) + "/"
}

func (k Space) Locks() string { return k.Prefix + "/locks/" }

func (k Space) Evictions() string { return k.Prefix + "/evicted/" }

func (k Space) Evicted(resource string, token fence.Token) string {
	return k.Evictions() + token.String() + "/" + url.PathEscape(resource)
}

func (k Space) ParseQueue(key string) (resource string, ok bool) {
	rest, ok := strings.CutPrefix(key, k.Locks())
	escaped, _, inQueue := strings.Cut(rest, "/")
	resource, err := url.PathUnescape(escaped)
	return resource, ok && inQueue && !k.Mutex && err == nil && fence.ValidateResource(resource) == nil
}

// HidesWaiters reports whether resource may have waiters outside its queue: with Mutex, those in the queue of "a"
// wait for the holder of "a/b".
func (k Space) HidesWaiters(resource string) bool {
	return k.Mutex && strings.Contains(resource, "/")
}

// Name is a key within its queue. number distinguishes the keys of one session; with Mutex there is only one.
func (k Space) Name(id clientv3.LeaseID, number int32) string {
	name := strconv.FormatInt(int64(id), 16)
	if k.Mutex {
		return name
	}
	return name + "-" + strconv.Itoa(int(number))
}

func (k Space) ParseName(name string) (id clientv3.LeaseID, number int32, ok bool) {
	session, rest, ok := strings.Cut(name, "-")
	if !ok || k.Mutex {
		return 0, 0, false
	}
	i, notID := strconv.ParseInt(session, 16, 64)
	n, notNumber := strconv.ParseInt(rest, 10, 32)
	return clientv3.LeaseID(i), int32(n), notID == nil && notNumber == nil
}

// Void is the key whose revision rules out what the session sent before.
func (k Space) Void(id clientv3.LeaseID) string {
	return k.Prefix + "/void/" + strconv.FormatInt(int64(id), 16)
}

func (k Space) Epoch() string { return k.Prefix + "/epoch" }

// LockValue is the value of a lock key, for people and observers. No decision depends on it.
type LockValue struct {
	Holder string `json:"holder"`
	Epoch  int64  `json:"epoch"`
	Queued int64  `json:"queued,omitempty"` // by its own clock, in ms since 1970
	Value  string `json:"value,omitempty"`
}

func (v LockValue) Encode() (string, error) {
	data, err := json.Marshal(v)
	return string(data), err
}

func ParseLockValue(text []byte) (LockValue, bool) {
	var v LockValue
	if json.Unmarshal(text, &v) != nil || v.Holder == "" {
		return LockValue{}, false
	}
	return v, true
}

// Proclaimed reports whether text is only a proclaimed value. Such a value may look like a LockValue, so only what
// Encode would write counts as one.
func (k Space) Proclaimed(text []byte) bool {
	v, ok := ParseLockValue(text)
	if !ok || !k.Mutex {
		return !ok
	}
	lock, err := v.Encode()
	return err != nil || lock != string(text)
}

func HolderIn(value []byte) string {
	v, _ := ParseLockValue(value)
	return v.Holder
}
