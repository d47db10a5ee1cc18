package etcd

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

// keyspace names the keys of one Config.
type keyspace struct {
	prefix string
	mutex  bool // lock keys as those of etcd's concurrency.Mutex
}

// validate refuses a resource that can't be one here. With raw names a queue
// must keep clear of the keys under the prefix.
func (k keyspace) validate(resource string) error {
	if err := fence.ValidateResource(resource); err != nil || !k.mutex {
		return err
	}
	queue, own := resource+"/", k.prefix+"/"
	if strings.HasPrefix(queue, own) || strings.HasPrefix(own, queue) {
		return &fence.InvalidGrantError{Part: "resource", Reason: fmt.Sprintf("%q meets the keys under Config.Prefix %q", resource, k.prefix)}
	}
	return nil
}

// queue is the prefix of the keys of one resource. The name is escaped as in a
// URL path: injective, and without a slash, so that the range of "a" never
// reaches into that of "a/b". With mutex it is raw, and does.
func (k keyspace) queue(resource string) string {
	if k.mutex {
		return resource + "/"
	}
	return k.prefix + "/locks/" + url.PathEscape(resource) + "/"
}

// hidesWaiters reports whether the queue of resource may not show all who wait for
// its holder: with mutex, those in the queue of "a" wait for the holder of "a/b".
func (k keyspace) hidesWaiters(resource string) bool {
	return k.mutex && strings.Contains(resource, "/")
}

// lock is the key of one acquisition. With mutex the next one of the same session
// has the same key: only its create revision tells them apart.
func (k keyspace) lock(resource string, id clientv3.LeaseID, nonce string) string {
	if k.mutex {
		return fmt.Sprintf("%s%x", k.queue(resource), int64(id))
	}
	return fmt.Sprintf("%s%x-%s", k.queue(resource), int64(id), nonce)
}

// voids is the prefix of a session's void key.
func (k keyspace) voids(id clientv3.LeaseID) string {
	return fmt.Sprintf("%s/void/%x/", k.prefix, int64(id))
}

// void is the key that keeps the acquiring Txns of a session from taking effect
// later, up to the one with that number. Keys sort as their numbers do.
func (k keyspace) void(id clientv3.LeaseID, number int64) string {
	return fmt.Sprintf("%s%016x", k.voids(id), number)
}

// epoch is the key of the epoch.
func (k keyspace) epoch() string { return k.prefix + "/epoch" }

// newNonce returns 128 random bits in hexadecimal.
func newNonce() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

func holderName(label, nonce string) string { return label + "-" + nonce }

// lockValue is the value of a lock key: for people, for the error of TryAcquire,
// and for those who observe an election. Nothing is decided by it.
type lockValue struct {
	Holder string    `json:"holder"`
	Epoch  int64     `json:"epoch"`
	Since  time.Time `json:"since"` // when the acquisition began
	Value  string    `json:"value,omitempty"`
}

func (v lockValue) encode() (string, error) {
	data, err := json.Marshal(v)
	return string(data), err
}

func parseLockValue(text []byte) (lockValue, bool) {
	var v lockValue
	if json.Unmarshal(text, &v) != nil || v.Holder == "" {
		return lockValue{}, false
	}
	return v, true
}

// proclaimed reports whether text is a proclaimed value and nothing else, as in the
// key of a candidate with mutex. A proclaimed value may itself be JSON with a holder;
// only what encode writes is taken for a lockValue.
func (k keyspace) proclaimed(text []byte) bool {
	v, ok := parseLockValue(text)
	if !ok || !k.mutex {
		return !ok
	}
	lock, err := v.encode()
	return err != nil || lock != string(text)
}

// holderIn returns the holder that the value of a lock key names, "" if it names
// none.
func holderIn(value []byte) string {
	v, _ := parseLockValue(value)
	return v.Holder
}
