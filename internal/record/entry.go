package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// The kinds of entries, as the column kind has them.
const (
	Claim = 'c'
	Write = 'w'
	Void  = 'v'
)

// Hash is a hash as it is stored: 32 bytes, unless it was changed.
type Hash []byte

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) (err error) {
	*h, err = hex.AppendDecode(nil, text)
	return err
}

func (h Hash) String() string { return hex.EncodeToString(h) }

// Entry is a row of the table history. A nil pointer is null.
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

// Kind is one byte, as the server's type "char".
type Kind byte

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte{byte(k)}, nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(text []byte) error {
	*k = 0 // what is longer is no kind
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

// Before returns the hash that comes before the first entry of a resource.
func Before(name string) [sha256.Size]byte { return sha256.Sum256([]byte("fencekit:" + name)) }

// AppendPreimage appends to b, and returns, what the hash of e covers beside the hash before
// it: as functions append and claim of the schema compute it.
func (e *Entry) AppendPreimage(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(e.Resource))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Seq))
	b = append(b, byte(e.Kind))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Claim))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Tx))
	b = binary.BigEndian.AppendUint64(b, e.Xid)
	b = binary.BigEndian.AppendUint64(b, uint64(e.At))
	if e.Kind != Claim {
		return append(b, text(e.Ops)...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(orZero(e.Epoch)))
	b = binary.BigEndian.AppendUint64(b, uint64(orZero(e.Token)))
	b = binary.BigEndian.AppendUint32(b, uint32(orZero(e.Timeline)))
	holder := text(e.Holder)
	b = binary.BigEndian.AppendUint32(b, uint32(len(holder)))
	return append(append(b, holder...), text(e.Name)...)
}

func text(s *string) string { return orZero(s) }

func orZero[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}
