package check

import (
	"cmp"
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// grant is a grant as far as grants of one resource are ordered by it.
type grant struct{ epoch, token int64 }

func (g grant) compare(other grant) int {
	return cmp.Or(cmp.Compare(g.epoch, other.epoch), cmp.Compare(g.token, other.token))
}

func (g grant) String() string {
	if g.epoch > 1 {
		return fmt.Sprintf("token %d of epoch %d", g.token, g.epoch)
	}
	return fmt.Sprintf("token %d", g.token)
}

func grantOf(e observe.Entry) grant { return grant{e.Epoch, e.Token} }

// grantKey is a grant of a resource.
type grantKey struct {
	resource string
	grant
}

func keyOf(e history.Event) grantKey { return grantKey{e.Resource, grant{e.Epoch, e.Token}} }
