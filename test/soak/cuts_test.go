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
	every  int       // on average one of so many COMMITs is cut; 0: none
	wait   int       // until the next one
	armed  bool      // the next COMMIT of an operation is cut, and can't be resolved
	deaf   time.Time // until then no outcome can be resolved

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
	// Alternately before and after the server gets it: a short run has both.
	if c.commits <= c.replies {
		c.commits++
		return pgproxy.SwallowCommit()
	}
	c.replies++
	return pgproxy.SwallowReply()
}

// deafen loses the outcome of the next COMMIT, and the query that would resolve it.
func (c *cuts) deafen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = true
}
