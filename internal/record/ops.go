package record

import (
	"encoding/json"

	"github.com/fencekit/fencekit/storage"
)

// Ops returns the operations that the ops of an entry have. Ops that are no array of operations are
// one operation with the attribute "malformed", which is their text: no write may keep its
// resource's history from being read. The view entry_operation does the same.
func Ops(text string) (ops []storage.OpRecord) {
	if json.Unmarshal([]byte(text), &ops) != nil {
		return []storage.OpRecord{{Attrs: map[string]string{"malformed": text}}}
	}
	return ops
}
