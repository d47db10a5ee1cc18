package keys

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
)

// Space names the keys of one Config.
type Space struct {
	Prefix string
	Mutex  bool // lock keys as those of etcd's concurrency.Mutex
}

// Validate returns an error for a name that can't be a resource here. With raw names a
// queue must not overlap the keys under the prefix.
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

// Queue is the prefix of the keys of one resource. The name is escaped as in a URL path: it
// has no slash, and different names stay different, so that the queue of "a" never contains
// keys of "a/b". With Mutex the name is not escaped, and the queue of "a" does contain
// them.
func (k Space) Queue(resource string) string {
	if k.Mutex {
		return resource + "/"
	}
	return k.Prefix + "/locks/" + url.PathEscape(resource) + "/"
}

// HidesWaiters reports whether the holder of resource may have waiters that its queue
// doesn't show: with Mutex, those in the queue of "a" wait for the holder of "a/b".
func (k Space) HidesWaiters(resource string) bool {
	return k.Mutex && strings.Contains(resource, "/")
}

// Lock is the key of one acquisition. With Mutex the session's next acquisition has the
// same key: only the create revision distinguishes them.
func (k Space) Lock(resource string, id clientv3.LeaseID, nonce string) string {
	if k.Mutex {
		return fmt.Sprintf("%s%x", k.Queue(resource), int64(id))
	}
	return fmt.Sprintf("%s%x-%s", k.Queue(resource), int64(id), nonce)
}

// Voids is the prefix of a session's void keys.
func (k Space) Voids(id clientv3.LeaseID) string {
	return fmt.Sprintf("%s/void/%x/", k.Prefix, int64(id))
}

// Void is the key that rules out the acquiring Txns of a session up to that number, also
// those that arrive later. Keys sort as their numbers do.
func (k Space) Void(id clientv3.LeaseID, number int64) string {
	return fmt.Sprintf("%s%016x", k.Voids(id), number)
}

// Epoch is the key of the epoch.
func (k Space) Epoch() string { return k.Prefix + "/epoch" }

// NewNonce returns 128 random bits in hexadecimal.
func NewNonce() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

func HolderName(label, nonce string) string { return label + "-" + nonce }

// LockValue is the value of a lock key: for people, for the error of TryAcquire,
// and for observers of an election. No decision depends on it.
type LockValue struct {
	Holder string    `json:"holder"`
	Epoch  int64     `json:"epoch"`
	Since  time.Time `json:"since"` // when the acquisition began
	Value  string    `json:"value,omitempty"`
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

// Proclaimed reports whether text is a proclaimed value and nothing else, as in the
// key of a candidate with Mutex. A proclaimed value may itself be JSON with a holder;
// only what Encode writes is taken for a LockValue.
func (k Space) Proclaimed(text []byte) bool {
	v, ok := ParseLockValue(text)
	if !ok || !k.Mutex {
		return !ok
	}
	lock, err := v.Encode()
	return err != nil || lock != string(text)
}

// HolderIn returns the holder that the value of a lock key names, "" if it names
// none.
func HolderIn(value []byte) string {
	v, _ := ParseLockValue(value)
	return v.Holder
}
