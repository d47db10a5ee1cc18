package etcd

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keyspace names the keys under one prefix.
type keyspace struct{ prefix string }

// queue is the prefix of the keys of one resource. The name is escaped as in a
// URL path: injective, and without a slash, so that the range of "a" never
// reaches into that of "a/b".
func (k keyspace) queue(resource string) string {
	return k.prefix + "/locks/" + url.PathEscape(resource) + "/"
}

// lock is the key of one acquisition.
func (k keyspace) lock(resource string, id clientv3.LeaseID, nonce string) string {
	return fmt.Sprintf("%s%x-%s", k.queue(resource), int64(id), nonce)
}

// void is the key that keeps an acquisition from taking effect later.
func (k keyspace) void(nonce string) string { return k.prefix + "/void/" + nonce }

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

// holderIn returns the holder that the value of a lock key names, "" if it names
// none.
func holderIn(value []byte) string {
	var v lockValue
	if json.Unmarshal(value, &v) != nil {
		return ""
	}
	return v.Holder
}
