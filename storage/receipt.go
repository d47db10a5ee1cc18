package storage

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/fencekit/fencekit/fence"
)

// Receipt says where the history has an operation that took effect: one entry for each resource that its transaction
// moved, in the order of their names. It is no secret and isn't signed: the history proves it, see
// audit.VerifyOptions. nil is no receipt.
type Receipt []ReceiptEntry

// ReceiptEntry names an entry, and by the Hash all that it says and all entries before it.
type ReceiptEntry struct {
	Grant fence.Grant
	Position
	Hash [32]byte
}

const receiptPrefix = "fencekit1"

// String returns the text form of r: a line of a version and, after a space each, the entries: position, transaction,
// hash in hexadecimal, and the text form of the grant, separated by colons. It is ASCII. Of no receipt it is "".
func (r Receipt) String() string {
	if r == nil {
		return ""
	}
	text := []byte(receiptPrefix)
	for _, e := range r {
		text = fmt.Appendf(text, " %d:%d:%x:%s", e.Seq, e.Tx, e.Hash, e.Grant)
	}
	return string(text)
}

// ParseReceipt parses the text form of a receipt, see [Receipt.String]. A receipt has exactly one; everything else is
// [fence.ErrInvalid].
func ParseReceipt(text string) (Receipt, error) {
	words := strings.Split(text, " ")
	if words[0] != receiptPrefix || len(words) == 1 {
		return nil, fmt.Errorf("%w: a receipt is %s POSITION:TRANSACTION:HASH:GRANT ..., got %.60q", fence.ErrInvalid, receiptPrefix, text)
	}
	var r Receipt
	for _, word := range words[1:] {
		var e ReceiptEntry
		parts := strings.SplitN(word, ":", 4)
		if len(parts) == 4 {
			e.Seq, _ = strconv.ParseInt(parts[0], 10, 64) // what can't be parsed isn't written like this either
			tx, _ := strconv.ParseInt(parts[1], 10, 64)
			hash, _ := hex.DecodeString(parts[2])
			e.Tx, e.Hash = TxID(tx), [32]byte(append(hash, make([]byte, 32)...))
			e.Grant, _ = fence.ParseGrant(parts[3])
		}
		r = append(r, e)
		if e.Grant.Validate() != nil || (Receipt{e}).String() != receiptPrefix+" "+word {
			return nil, fmt.Errorf("%w: entry %d of the receipt was changed or is incomplete: %.60q", fence.ErrInvalid, len(r), word)
		}
	}
	return r, nil
}
