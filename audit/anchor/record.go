package anchor

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/fencekit/fencekit/audit"
)

// record is a line of a log: the head of a resource or, as the first line of a log that continues
// another log, the last checkpoint of that log.
type record struct {
	At        time.Time `json:"at"` // to the second, in UTC
	Resource  string    `json:"resource,omitempty"`
	Seq       int64     `json:"seq,omitempty"`
	Hash      hash      `json:"hash,omitzero"`
	Continues string    `json:"continues,omitempty"`
}

func headRecord(at time.Time, head audit.Head) record {
	return record{At: at, Resource: head.Resource, Seq: head.Seq, Hash: head.Hash}
}

// head is the inverse of headRecord.
func (r record) head() audit.Head { return audit.Head{Resource: r.Resource, Seq: r.Seq, Hash: r.Hash} }

// hash is a hash whose JSON form is hexadecimal.
type hash [32]byte

func (h hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

func (h *hash) UnmarshalText(text []byte) error {
	bytes, err := hex.DecodeString(string(text))
	if err != nil || len(bytes) != len(h) {
		return errNoRecord
	}
	*h = hash(bytes)
	return nil
}

// line returns the record as it stands in a log, with its newline.
func (r record) line() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		panic(err) // can't fail: At is the clock's time or was parsed by parseRecord
	}
	return b.Bytes()
}

// parseRecord is the inverse of line. It accepts no other text.
func parseRecord(line []byte) (record, error) {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return record{}, err
	}
	isHead := r.Resource != "" && r.Seq > 0 && r.Continues == ""
	isLink := r.Continues != "" && r == record{At: r.At, Continues: r.Continues}
	if !isHead && !isLink || !bytes.Equal(r.line(), line) {
		return record{}, errNoRecord
	}
	return r, nil
}

var errNoRecord = errors.New("no record")
