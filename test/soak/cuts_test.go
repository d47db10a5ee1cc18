package soak_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/fencekit/fencekit/internal/pgproxy"
)

// cuts decides which statements a proxy cuts.
type cuts struct {
	mu     sync.Mutex
	random *rand.Rand
	every  int       // on average, so many COMMITs there are for each that is cut; 0: none is
	wait   int       // until the next one
	armed  bool      // the next COMMIT of an operation is cut, and can't be asked about
	deaf   time.Time // until then no outcome can be asked for

	commits, replies, questions int // that were cut
}

// rule is for Proxy.OnQuery.
func (c *cuts) rule(sql string) *pgproxy.Action {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case strings.Contains(sql, ".resolve(") && time.Now().Before(c.deaf):
		c.questions++
		return pgproxy.SwallowCommit()
	case !strings.Contains(sql, ".seal("):
		return nil
	case c.armed:
		c.armed = false
		c.deaf = time.Now().Add(2 * resolveTimeout)
	case c.every == 0:
		return nil
	case c.wait > 0:
		c.wait--
		return nil
	default:
		c.wait = c.random.IntN(2*c.every - 1)
	}
	// Before the server gets it, and after, by turns: a short run has both.
	if c.commits <= c.replies {
		c.commits++
		return pgproxy.SwallowCommit()
	}
	c.replies++
	return pgproxy.SwallowReply()
}

// deafen has the outcome of the next COMMIT be lost, and the question for it too.
func (c *cuts) deafen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = true
}
