// Package record defines the stored form of the history: the rows of its tables, the hash of an
// entry, and the lines of an export.
//
// The types represent every value that the columns can hold, also values that no guarded
// transaction writes: verification has to see tampered rows unchanged.
package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencekit/fencekit/storage"
)

// The values of the column kind.
const (
	Claim = 'c'
	Write = 'w'
	Void  = 'v'
)

// The bounds of how long a policy keeps the history, which may also be 0, and Once keys, which MaxKeep bounds too. They
// are also constraints of the table setting.
const (
	MinKeep     = time.Hour
	MinKeepOnce = time.Minute
	MaxKeep     = 100_000 * 24 * time.Hour
)

// Hash is a stored hash: 32 bytes, or any number of bytes after tampering.
type Hash []byte

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) (err error) {
	*h, err = hex.AppendDecode(nil, text)
	return err
}

func (h Hash) String() string { return hex.EncodeToString(h) }

// Entry is a row of the table history. A nil pointer stands for null.
type Entry struct {
	Resource int32   `json:"resource"`
	Seq      int64   `json:"seq"`
	Kind     Kind    `json:"kind"`
	Claim    int64   `json:"claim"`
	Tx       int64   `json:"tx,string"`
	Xid      uint64  `json:"xid,string"`
	At       Time    `json:"at"`
	Ops      *string `json:"ops,omitempty"` // the text as it is stored
	Epoch    *int64  `json:"epoch,omitempty"`
	Token    *int64  `json:"token,omitempty"`
	Timeline *int32  `json:"timeline,omitempty"`
	Holder   *string `json:"holder,omitempty"`
	Name     *string `json:"name,omitempty"`
	Hash     Hash    `json:"hash"`
}

// Kind is the kind of an entry: one byte, PostgreSQL's type "char".
type Kind byte

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte{byte(k)}, nil }

// UnmarshalText implements encoding.TextUnmarshaler. A text that isn't one byte becomes the
// unknown kind 0.
func (k *Kind) UnmarshalText(text []byte) error {
	*k = 0
	if len(text) == 1 {
		*k = Kind(text[0])
	}
	return nil
}

func (k Kind) String() string {
	switch k {
	case Claim:
		return "claim"
	case Write:
		return "write"
	case Void:
		return "void"
	}
	return "unknown"
}

// Before returns the hash that the first entry of the resource called name covers as the hash
// before it.
func Before(name string) [sha256.Size]byte { return sha256.Sum256([]byte("fencekit:" + name)) }

// AppendPreimage appends the bytes that the hash of e covers, apart from the hash before it, to b
// and returns the result. The SQL functions claim, seal and resolve build the same bytes.
func (e *Entry) AppendPreimage(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(e.Resource))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Seq))
	b = append(b, byte(e.Kind))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Claim))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Tx))
	b = binary.BigEndian.AppendUint64(b, e.Xid)
	b = binary.BigEndian.AppendUint64(b, uint64(e.At))
	if e.Kind != Claim {
		return append(b, orZero(e.Ops)...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(orZero(e.Epoch)))
	b = binary.BigEndian.AppendUint64(b, uint64(orZero(e.Token)))
	b = binary.BigEndian.AppendUint32(b, uint32(orZero(e.Timeline)))
	holder := orZero(e.Holder)
	b = binary.BigEndian.AppendUint32(b, uint32(len(holder)))
	return append(append(b, holder...), orZero(e.Name)...)
}

func orZero[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// Ops returns the operations that the ops of an entry have. Ops that are no array of operations are
// one operation with the attribute "malformed", which is their text: no write may keep its
// resource's history from being read. The view entry_operation does the same.
func Ops(text string) (ops []storage.OpRecord) {
	if json.Unmarshal([]byte(text), &ops) != nil {
		return []storage.OpRecord{{Attrs: map[string]string{"malformed": text}}}
	}
	return ops
}

// Time is a timestamptz as PostgreSQL stores it: microseconds since 2000-01-01 UTC. Unlike
// time.Time it represents every value of the type, "infinity" included.
type Time int64

// epoch is Time 0 in Unix microseconds.
const epoch = 946_684_800_000_000

// RFC 3339 can write times from minTime to before maxTime.
var minTime, maxTime = TimeOf(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)), TimeOf(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))

// TimeOf converts t, truncated to the microsecond.
func TimeOf(t time.Time) Time { return Time(t.UnixMicro() - epoch) }

// Time converts t to a time.Time in UTC. It is exact for the years 0 to 9999.
func (t Time) Time() time.Time { return time.UnixMicro(int64(t) + epoch).UTC() }

const outside = "microseconds:"

// String returns t in RFC 3339 with microseconds, or, for other years, as a number with a prefix.
func (t Time) String() string {
	if t < minTime || t >= maxTime {
		return outside + strconv.FormatInt(int64(t), 10)
	}
	return t.Time().Format("2006-01-02T15:04:05.000000Z07:00")
}

// MarshalText implements encoding.TextMarshaler.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Time) UnmarshalText(text []byte) error {
	if number, ok := strings.CutPrefix(string(text), outside); ok {
		n, err := strconv.ParseInt(number, 10, 64)
		*t = Time(n)
		return err
	}
	at, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return err
	}
	if *t = TimeOf(at); at.Nanosecond()%1000 != 0 {
		return fmt.Errorf("record: %s is finer than a microsecond", text)
	}
	return nil
}
