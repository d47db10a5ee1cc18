package anchor

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
)

// ReadHeads returns all heads that the largest of the checkpoints covers, in the order of the
// log. It fails with ErrNotProven if the log doesn't match each of the checkpoints, and with
// fence.ErrInvalid without a checkpoint.
func ReadHeads(log io.Reader, checkpoints ...*Checkpoint) ([]audit.Head, error) {
	if len(checkpoints) == 0 {
		return nil, fmt.Errorf("%w: a log proves nothing without a signed checkpoint", fence.ErrInvalid)
	}
	size := slices.MaxFunc(checkpoints, func(a, b *Checkpoint) int { return cmp.Compare(a.Size, b.Size) }).Size
	var heads []audit.Head
	names := map[string]string{} // one string for all heads of a resource
	_, _, err := replay(log, checkpoints, func(n int64, r record, _ []byte) {
		if n >= size || r.Resource == "" {
			return
		}
		head := r.head()
		if name, ok := names[head.Resource]; ok {
			head.Resource = name
		}
		names[head.Resource] = head.Resource
		heads = append(heads, head)
	})
	if err != nil {
		return nil, err
	}
	return heads, nil
}
